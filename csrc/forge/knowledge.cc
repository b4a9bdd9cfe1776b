#include "forge/knowledge.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "forge/embedded.h"

namespace cudaforge {
namespace {

constexpr std::string_view kFolder = "knowledge/";
constexpr std::string_view kSuffix = ".md";
constexpr std::string_view kContract = "contract/";

// "---", one line "name: word word" for each kind of tag, "---", then the text.
Document ParseDocument(const EmbeddedText& embedded) {
  Document document;
  std::string_view id = embedded.path;
  id.remove_prefix(kFolder.size());
  id.remove_suffix(kSuffix.size());
  document.id = std::string(id);
  std::string_view rest = embedded.text;
  const auto next_line = [&rest] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    return line;
  };
  CF_CHECK(next_line() == "---") << embedded.path << " begins with no header";
  for (std::string_view line = next_line(); line != "---"; line = next_line()) {
    CF_CHECK(!rest.empty()) << embedded.path << ": a header without end";
    std::vector<std::string_view> words = Split(line, ' ');
    std::erase(words, "");
    const std::string_view name = words.empty() ? "" : words.front();
    std::vector<std::string>* tags = name == "languages:"  ? &document.languages
                                     : name == "kinds:"    ? &document.kinds
                                     : name == "archs:"    ? &document.archs
                                     : name == "limiters:" ? &document.limiters
                                                           : nullptr;
    CF_CHECK(tags != nullptr) << embedded.path << ": unknown tags " << name;
    tags->insert(tags->end(), words.begin() + 1, words.end());
  }
  document.text = std::string(rest);
  return document;
}

std::vector<Document> ParseAll() {
  std::vector<Document> documents;
  for (const EmbeddedText& embedded : EmbeddedTexts()) {
    if (embedded.path.starts_with(kFolder)) documents.push_back(ParseDocument(embedded));
  }
  std::sort(documents.begin(), documents.end(),
            [](const Document& a, const Document& b) { return a.id < b.id; });
  return documents;
}

// The tag of an arch: "sm_90" for "cuda:sm_90a", "x86-64" for "cpu:x86-64-v4+1f0c93ab".
std::string ArchTag(std::string_view arch) {
  arch.remove_prefix(std::min(arch.find(':') + 1, arch.size()));
  arch = arch.substr(0, arch.find('+'));
  if (arch.starts_with("sm_")) {
    while (arch.ends_with('a') || arch.ends_with('f')) arch.remove_suffix(1);
  } else if (const size_t level = arch.rfind("-v"); level != std::string_view::npos) {
    arch = arch.substr(0, level);
  }
  return std::string(arch);
}

// How specific a document is to the query; negative: it does not match.
int Score(const Document& document, const KnowledgeQuery& query, const std::string& arch) {
  int score = 0;
  const struct {
    const std::vector<std::string>& tags;
    std::string_view word;
    int worth;
  } sorts[] = {{document.languages, query.language, 0},
               {document.kinds, query.region_kind, 4},
               {document.limiters, query.limiter, 2},
               {document.archs, arch, 1}};
  for (const auto& [tags, word, worth] : sorts) {
    if (tags.empty()) continue;
    if (!IsIn(word, tags)) return -1;
    score += worth;
  }
  return score;
}

}  // namespace

const std::vector<Document>& AllDocuments() {
  static const auto* const documents = new std::vector<Document>(ParseAll());
  return *documents;
}

const Document* FindDocument(std::string_view id) {
  for (const Document& document : AllDocuments()) {
    if (document.id == id) return &document;
  }
  return nullptr;
}

std::vector<const Document*> Retrieve(const KnowledgeQuery& query, size_t max_bytes,
                                      std::vector<const Document*>* left_out) {
  if (left_out != nullptr) left_out->clear();
  CF_CHECK(FindDocument(std::string(kContract) + query.language) != nullptr)
      << "no language of candidates: " << query.language;
  const std::string arch = ArchTag(query.arch);
  struct Found {
    int score;
    const Document* document;
  };
  std::vector<Found> found;
  std::vector<const Document*> chosen;
  size_t bytes = 0;
  for (const Document& document : AllDocuments()) {
    const int score = Score(document, query, arch);
    if (score < 0) continue;
    if (!document.id.starts_with(kContract)) {
      found.push_back({score, &document});
      continue;
    }
    chosen.push_back(&document);
    bytes += document.text.size();
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.score > b.score; });
  for (const auto& [score, document] : found) {
    if (bytes + document->text.size() > max_bytes) {
      if (left_out != nullptr) left_out->push_back(document);
      continue;
    }
    bytes += document->text.size();
    chosen.push_back(document);
  }
  return chosen;
}

}  // namespace cudaforge
