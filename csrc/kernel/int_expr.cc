#include "kernel/int_expr.h"

#include <algorithm>

#include "base/text.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxText = 1024;
constexpr int kMaxNesting = 32;

// A recursive descent parser that evaluates directly. Without a signature every symbol is 1, to
// check only the grammar.
class Evaluator {
 public:
  Evaluator(std::string_view text, const OpSignature* signature)
      : text_(text), signature_(signature) {}

  Result<int64_t> Run() {
    CF_ASSIGN_OR_RETURN(const int64_t value, Sum());
    Skip();
    if (at_ != text_.size()) return Error("unexpected text");
    return value;
  }

 private:
  Status Error(const std::string& what) const {
    return Status::InvalidArgument("expression \"" + std::string(text_) + "\" at " +
                                   std::to_string(at_) + ": " + what);
  }
  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Result<int64_t> Apply(char op, int64_t a, int64_t b) const {
    int64_t out = 0;
    bool overflow = false;
    switch (op) {
      case '+':
        overflow = __builtin_add_overflow(a, b, &out);
        break;
      case '-':
        overflow = __builtin_sub_overflow(a, b, &out);
        break;
      case '*':
        overflow = __builtin_mul_overflow(a, b, &out);
        break;
      default:
        // Without a signature values are meaningless, so a zero divisor is no error.
        if (signature_ == nullptr && b == 0) return int64_t{1};
        if (b == 0) return Error("division by zero");
        if (a == INT64_MIN && b == -1) return Error("overflow");
        out = op == '/' ? a / b : a % b;
    }
    if (overflow && signature_ != nullptr) return Error("overflow");
    return out;
  }

  Result<int64_t> Sum() {
    if (++depth_ > kMaxNesting) return Error("nested too deep");
    CF_ASSIGN_OR_RETURN(int64_t value, Product());
    for (Skip(); at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-'); Skip()) {
      const char op = text_[at_++];
      CF_ASSIGN_OR_RETURN(const int64_t right, Product());
      CF_ASSIGN_OR_RETURN(value, Apply(op, value, right));
    }
    --depth_;
    return value;
  }

  Result<int64_t> Product() {
    CF_ASSIGN_OR_RETURN(int64_t value, Atom());
    for (Skip();
         at_ < text_.size() && std::string_view("*/%").find(text_[at_]) != std::string::npos;
         Skip()) {
      const char op = text_[at_++];
      CF_ASSIGN_OR_RETURN(const int64_t right, Atom());
      CF_ASSIGN_OR_RETURN(value, Apply(op, value, right));
    }
    return value;
  }

  Result<int64_t> Atom() {
    if (Take('(')) {
      CF_ASSIGN_OR_RETURN(const int64_t value, Sum());
      if (!Take(')')) return Error("expected )");
      return value;
    }
    if (Take('-')) {
      if (++depth_ > kMaxNesting) return Error("nested too deep");
      CF_ASSIGN_OR_RETURN(const int64_t value, Atom());
      --depth_;
      return Apply('-', 0, value);
    }
    Skip();
    if (at_ < text_.size() && IsDigit(text_[at_])) {
      return Integer();
    }
    const size_t start = at_;
    while (at_ < text_.size() && (IsLetter(text_[at_]) || IsDigit(text_[at_]) ||
                                  text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    const std::string_view word = text_.substr(start, at_ - start);
    if (word.empty()) return Error("expected a value");
    if (word == "min" || word == "max" || word == "ceil_div") return Call(word);
    return Symbol(word);
  }

  Result<int64_t> Integer() {
    int64_t value = 0;
    while (at_ < text_.size() && IsDigit(text_[at_])) {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value)) {
        return Error("number too large");
      }
      ++at_;
    }
    return value;
  }

  Result<int64_t> Call(std::string_view function) {
    if (!Take('(')) return Error("expected (");
    CF_ASSIGN_OR_RETURN(const int64_t a, Sum());
    if (!Take(',')) return Error("expected ,");
    CF_ASSIGN_OR_RETURN(const int64_t b, Sum());
    if (!Take(')')) return Error("expected )");
    if (function == "min") return std::min(a, b);
    if (function == "max") return std::max(a, b);
    if (signature_ != nullptr && (b <= 0 || a < 0)) return Error("ceil_div needs a >= 0, b > 0");
    if (b <= 0) return int64_t{1};
    return a / b + (a % b != 0 ? 1 : 0);
  }

  // inI.sizeD, inI.strideD, outI.sizeD
  Result<int64_t> Symbol(std::string_view word) const {
    const size_t dot = word.find('.');
    if (dot == std::string_view::npos) return Error("unknown name");
    std::string_view tensor = word.substr(0, dot);
    std::string_view field = word.substr(dot + 1);
    const bool input = tensor.starts_with("in");
    if (!input && !tensor.starts_with("out")) return Error("unknown name");
    const bool size = field.starts_with("size");
    if (!size && !(input && field.starts_with("stride"))) return Error("unknown name");
    tensor.remove_prefix(input ? 2 : 3);
    field.remove_prefix(size ? 4 : 6);
    CF_ASSIGN_OR_RETURN(const size_t index, SmallNumber(tensor));
    CF_ASSIGN_OR_RETURN(const size_t dim, SmallNumber(field));
    if (signature_ == nullptr) return int64_t{1};
    const size_t count = input ? signature_->inputs.size() : signature_->outputs.size();
    if (index >= count) return Error("no such tensor");
    const TensorSpec& spec = input ? signature_->inputs[index] : signature_->output_spec(index);
    if (dim >= spec.sizes.size()) return Error("no such dimension");
    return size ? spec.sizes[dim] : spec.strides[dim];
  }

  Result<size_t> SmallNumber(std::string_view digits) const {
    const std::optional<size_t> number = ParseInteger<size_t>(digits);
    if (!number.has_value() || digits.size() > 3) return Error("unknown name");
    return *number;
  }

  std::string_view text_;
  const OpSignature* signature_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<IntExpr> IntExpr::Parse(std::string_view text) {
  if (text.size() > kMaxText) return Status::InvalidArgument("expression over 1024 characters");
  CF_RETURN_IF_ERROR(Evaluator(text, nullptr).Run().status());
  IntExpr out;
  out.text_ = std::string(text);
  return out;
}

Result<int64_t> IntExpr::Evaluate(const OpSignature& signature) const {
  return Evaluator(text_, &signature).Run();
}

}  // namespace cudaforge
