#include "forge/knowledge.h"

namespace cudaforge {

const std::vector<Document>& AllDocuments() {
  static const auto* const documents = new std::vector<Document>{
      {"contract/cpu", "# The contract of a CPU candidate\n", {"cpu"}, {}, {}, {}},
      {"contract/cuda", "# The contract of a CUDA candidate\n", {"cuda"}, {}, {}, {}}};
  return *documents;
}

const Document* FindDocument(std::string_view id) {
  for (const Document& document : AllDocuments()) {
    if (document.id == id) return &document;
  }
  return nullptr;
}

std::vector<const Document*> Retrieve(const KnowledgeQuery& query, size_t max_bytes) {
  const Document* contract = FindDocument("contract/" + query.language);
  if (contract == nullptr || contract->text.size() > max_bytes) return {};
  return {contract};
}

}  // namespace cudaforge
