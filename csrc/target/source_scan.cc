#include "target/source_scan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace cudaforge {
namespace {

bool IsIdStart(char c) { return IsLetter(c) || c == '_' || c == '$'; }
bool IsIdChar(char c) { return IsIdStart(c) || IsDigit(c); }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

bool BeginsWithAny(std::string_view text, std::span<const std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [text](std::string_view prefix) { return text.starts_with(prefix); });
}

// Splits source as translation phases 2 and 3 do: splices lines, drops comments, empties literals,
// and checks every identifier and directive that remains.
class Scanner {
 public:
  Scanner(std::string_view code, const ScanRules& rules) : rules_(rules) { Splice(code); }

  Status Run() {
    while (at_ < text_.size() && status_.ok()) Step();
    EndLine();
    return status_;
  }

 private:
  // Removes backslash, optional blanks, newline, as GCC and NVRTC do.
  void Splice(std::string_view code) {
    int line = 1;
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i] == '\\') {
        size_t end = i + 1;
        while (end < code.size() && IsBlank(code[end])) ++end;
        if (end < code.size() && code[end] == '\n') {
          i = end;
          ++line;
          continue;
        }
      }
      text_ += code[i];
      lines_.push_back(line);
      if (code[i] == '\n') ++line;
    }
  }

  char Peek(size_t offset) const {
    return at_ + offset < text_.size() ? text_[at_ + offset] : '\0';
  }

  void Refuse(const std::string& why) {
    if (!status_.ok()) return;
    const int line = lines_.empty() ? 1 : lines_[std::min(at_, lines_.size() - 1)];
    status_ = Status::InvalidArgument("line " + std::to_string(line) + ": " + why);
  }

  void Step() {
    const char c = text_[at_];
    if (c == '\n') {
      EndLine();
      ++at_;
    } else if (c == '/' && Peek(1) == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '/' && Peek(1) == '*') {
      const size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string::npos ? text_.size() : end + 2;
      current_ += ' ';
    } else if (IsIdStart(c)) {
      Identifier();
    } else if (IsDigit(c)) {
      Number();
    } else if (c == '"' || c == '\'') {
      Literal(c);
    } else {
      Punctuation(c);
    }
  }

  void Identifier() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsIdChar(text_[at_])) ++at_;
    const std::string_view word = std::string_view(text_).substr(begin, at_ - begin);
    const bool raw = word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R";
    if (raw && Peek(0) == '"') Refuse("raw string literals are refused");
    if (BeginsWithAny(word, rules_.banned_prefixes) || IsIn(word, rules_.banned_words))
      Refuse("'" + std::string(word) + "' is refused in kernel source");
    current_ += word;
  }

  // A preprocessing number, in which ' is a digit separator.
  void Number() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool sign = (c == '+' || c == '-') &&
                        std::string_view("eEpP").find(text_[at_ - 1]) != std::string_view::npos;
      const bool separator = c == '\'' && IsIdChar(Peek(1));
      if (!IsIdChar(c) && c != '.' && !sign && !separator) break;
      current_ += c;
      ++at_;
    }
  }

  void Literal(char quote) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      at_ += text_[at_] == '\\' && at_ + 1 < text_.size() ? 2 : 1;
    }
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
    current_ += quote;
    current_ += quote;
  }

  void Punctuation(char c) {
    if (c == '\0') Refuse("a NUL byte is refused");
    if (c == '\\') Refuse("a backslash outside a literal is refused");
    if (c == '%' && Peek(1) == ':') Refuse("the digraph %: is refused");
    if (c == '#' && Peek(1) == '#' && !rules_.allow_token_paste)
      Refuse("token pasting (##) is refused");
    current_ += c;
    ++at_;
  }

  void EndLine() {
    const std::string line = std::exchange(current_, {});
    std::string_view rest = Trim(line);
    if (rest.empty() || rest.front() != '#') return;
    rest = Trim(rest.substr(1));
    size_t end = 0;
    while (end < rest.size() && IsIdChar(rest[end])) ++end;
    const std::string_view name = rest.substr(0, end);
    rest = Trim(rest.substr(end));
    static constexpr std::string_view kPlain[] = {"",       "define", "undef", "if",    "ifdef",
                                                  "ifndef", "elif",   "else",  "endif", "error"};
    if (name == "include") {
      Include(rest);
    } else if (name == "pragma") {
      Pragma(rest);
    } else if (!IsIn(name, kPlain) || (name.empty() && !rest.empty())) {
      Refuse("#" + std::string(name) + " is refused");
    }
  }

  void Include(std::string_view rest) {
    if (rest.size() < 3 || rest.front() != '<' || rest.back() != '>') {
      return Refuse(
          "an #include must have the form <header>: quoted and computed names are refused");
    }
    const std::string_view header = rest.substr(1, rest.size() - 2);
    const bool plain = header.front() != '/' && header.find("..") == std::string_view::npos &&
                       std::all_of(header.begin(), header.end(), [](char c) {
                         return IsIdChar(c) || c == '/' || c == '.' || c == '-';
                       });
    const bool prefixed = BeginsWithAny(header, rules_.include_prefixes);
    if (plain && (prefixed || IsIn(header, rules_.includes))) return;
    std::string allowed;
    for (const std::string_view name : rules_.includes) allowed += " <" + std::string(name) + ">";
    for (const std::string_view name : rules_.include_prefixes)
      allowed += " <" + std::string(name) + "...>";
    Refuse("#include <" + std::string(header) + "> is refused; allowed are" + allowed);
  }

  void Pragma(std::string_view rest) {
    for (const std::string_view prefix : rules_.pragmas) {
      if (rest.starts_with(prefix) &&
          (rest.size() == prefix.size() || !IsIdChar(rest[prefix.size()])))
        return;
    }
    std::string allowed;
    for (const std::string_view name : rules_.pragmas) allowed += " '" + std::string(name) + "'";
    Refuse("#pragma " + std::string(rest) + " is refused; allowed are" + allowed);
  }

  const ScanRules& rules_;
  std::string text_;        // spliced
  std::vector<int> lines_;  // original line of each character of text_
  std::string current_;     // the logical line so far, without comments and literals
  size_t at_ = 0;
  Status status_;
};

}  // namespace

Status ScanSource(std::string_view code, const ScanRules& rules) {
  return Scanner(code, rules).Run();
}

}  // namespace cudaforge
