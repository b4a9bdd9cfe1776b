#include "target/cuda/ptx_audit.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"

namespace cudaforge {
namespace {

using Words = std::vector<std::string_view>;

// PTX ISA, "Special Registers". For vectors, the part before the dot.
constexpr std::string_view kAllowed[] = {"%tid",
                                         "%ntid",
                                         "%ctaid",
                                         "%nctaid",
                                         "%laneid",
                                         "%warpid",
                                         "%nwarpid",
                                         "%lanemask_eq",
                                         "%lanemask_le",
                                         "%lanemask_lt",
                                         "%lanemask_ge",
                                         "%lanemask_gt",
                                         "%clusterid",
                                         "%nclusterid",
                                         "%cluster_ctaid",
                                         "%cluster_nctaid",
                                         "%cluster_ctarank",
                                         "%cluster_nctarank",
                                         "%is_explicit_cluster",
                                         "%total_smem_size",
                                         "%aggr_smem_size",
                                         "%dynamic_smem_size"};

bool IsWordCharacter(char c) {
  return IsLetter(c) || IsDigit(c) || c == '_' || c == '$' || c == '%';
}

std::string WithoutComments(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("//")) {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (text.substr(i).starts_with("/*")) {
      const size_t end = text.find("*/", i + 2);
      i = end == std::string_view::npos ? text.size() - 1 : end + 1;
      out += ' ';
      continue;
    }
    out += text[i];
  }
  return out;
}

// Splits into names, registers, opcodes with suffixes, directives, and brackets.
Words Split(std::string_view statement) {
  Words words;
  for (size_t i = 0; i < statement.size();) {
    const char c = statement[i];
    size_t end = i + 1;
    if (IsWordCharacter(c) || c == '.') {
      while (end < statement.size() &&
             (IsWordCharacter(statement[end]) || statement[end] == '.' || statement[end] == ':')) {
        ++end;
      }
      words.push_back(statement.substr(i, end - i));
    } else if (c == '{' || c == '}' || c == '@') {
      words.push_back(statement.substr(i, 1));
    }
    i = end;
  }
  return words;
}

// One instruction.
struct Instruction {
  std::string_view opcode;
  size_t results = 0;  // names in its first operand: several for a vector
  Words names;         // in all operands
};

// A statement without labels, predicates and directives; empty if there is no instruction.
Instruction Parse(const Words& words) {
  Instruction parsed;
  size_t i = 0;
  while (i < words.size()) {
    if (words[i] == "@") {
      i += 2;  // "@%p1", or "@!%p1", whose mark is not a word
    } else if (words[i].ends_with(":") || words[i] == "{" || words[i] == "}") {
      ++i;
    } else {
      break;
    }
  }
  if (i >= words.size() || words[i].starts_with(".")) return parsed;
  parsed.opcode = words[i];
  const bool vector = i + 1 < words.size() && words[i + 1] == "{";
  for (size_t w = i + 1; w < words.size(); ++w) {
    if (words[w] == "}" && parsed.results == 0) parsed.results = parsed.names.size();
    if (words[w] != "{" && words[w] != "}") parsed.names.push_back(words[w]);
  }
  if (!vector) parsed.results = std::min<size_t>(1, parsed.names.size());
  return parsed;
}

bool Writes(std::string_view opcode) {
  for (const std::string_view kind : {"st.", "atom.", "red.", "multimem.", "tensormap.", "call"}) {
    if (opcode.starts_with(kind)) return true;
  }
  return false;
}

class Audit {
 public:
  explicit Audit(std::string_view ptx) : text_(WithoutComments(ptx)) {}

  Status Run() {
    std::vector<Instruction> function;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = std::min(text_.find(';', at), text_.size());
      std::string_view statement = std::string_view(text_).substr(at, end - at);
      at = end + 1;
      const Words all = Split(statement);
      const auto has = [&all](std::string_view word) {
        return std::find(all.begin(), all.end(), word) != all.end();
      };
      if (has(".extern") && has(".func")) {  // malloc, printf
        return Status::InvalidArgument("it calls a function that is not its own: " +
                                       std::string(statement.substr(0, 200)));
      }
      if (has(".entry") || has(".func")) {
        CF_RETURN_IF_ERROR(CheckFunction(function));
        function.clear();
        declared_.clear();
        Declare(all);  // parameters may be registers
        statement = statement.substr(std::min(statement.rfind('{'), statement.size() - 1) + 1);
      }
      const Words words = Split(statement);
      if (words.empty()) continue;
      if (std::find(words.begin(), words.end(), ".reg") != words.end()) {
        Declare(words);
        continue;
      }
      const auto space = std::find_if(words.begin(), words.end(), [](std::string_view word) {
        return word == ".global" || word == ".const";
      });
      if (space != words.end()) {
        CF_ASSIGN_OR_RETURN(const std::string_view name, NameOfVariable({space, words.end()}));
        if (*space == ".global") globals_.insert(name);
        continue;
      }
      CF_RETURN_IF_ERROR(CheckRegisters(words));
      const Instruction parsed = Parse(words);
      if (parsed.opcode.starts_with("nanosleep")) {
        return Status::InvalidArgument("it may not wait (nanosleep)");
      }
      if (parsed.opcode == "brkpt") {
        return Status::InvalidArgument("it may not stop for a debugger (brkpt)");
      }
      if (!parsed.opcode.empty()) function.push_back(parsed);
    }
    return CheckFunction(function);
  }

 private:
  static std::string_view Base(std::string_view word) { return word.substr(0, word.find('.')); }

  // ".reg .b32 %r<25>", ".reg .u32 t1, t2": a name before "<" is a prefix for numbers.
  void Declare(const Words& words) {
    for (const std::string_view word : words) declared_.insert(word);
  }

  // The name in ".global .align 4 .u32 counter = 1": the first word that is neither directive nor
  // number. kInvalidArgument: the initialiser has names, which are addresses.
  static Result<std::string_view> NameOfVariable(const Words& words) {
    std::string_view name;
    for (const std::string_view word : words) {
      if (!IsWordCharacter(word[0]) || IsDigit(word[0])) continue;
      if (!name.empty()) {
        return Status::InvalidArgument("it may not have tables of addresses (" + std::string(name) +
                                       ")");
      }
      name = word;
    }
    return name;
  }

  Status CheckRegisters(const Words& words) const {
    for (const std::string_view word : words) {
      if (!word.starts_with("%")) continue;
      const std::string_view name = Base(word);
      if (IsIn(name, kAllowed) || declared_.contains(name)) continue;
      const size_t letters = name.find_last_not_of("0123456789") + 1;
      if (letters < name.size() && declared_.contains(name.substr(0, letters))) continue;
      return Status::InvalidArgument("it may not read the special register " + std::string(name));
    }
    return Status::Ok();
  }

  Status CheckFunction(const std::vector<Instruction>& function) const {
    std::set<std::string_view> addresses = globals_;  // including registers that may hold one
    const auto uses = [&addresses](const Words& names) {
      return std::any_of(names.begin(), names.end(),
                         [&](std::string_view name) { return addresses.contains(Base(name)); });
    };
    for (size_t known = 0; known != addresses.size();) {
      known = addresses.size();
      for (const Instruction& one : function) {
        const bool copies =
            !one.opcode.starts_with("ld") && !Writes(one.opcode) && !one.opcode.starts_with("cp.");
        if (!copies || !uses(one.names)) continue;
        for (size_t r = 0; r < one.results; ++r) addresses.insert(Base(one.names[r]));
      }
    }
    for (const Instruction& one : function) {
      const bool to_it = one.opcode.starts_with("cp.") && one.results > 0 &&
                         addresses.contains(Base(one.names[0]));
      if (!to_it && !(Writes(one.opcode) && uses(one.names))) continue;
      return Status::InvalidArgument(
          "it must not write to a variable that outlives a launch or pass on its address (" +
          std::string(one.opcode) + "); tables are __constant__");
    }
    return Status::Ok();
  }

  const std::string text_;
  std::set<std::string_view> declared_;  // of the function
  std::set<std::string_view> globals_;
};

}  // namespace

Status AuditPtx(std::string_view ptx) { return Audit(ptx).Run(); }

}  // namespace cudaforge
