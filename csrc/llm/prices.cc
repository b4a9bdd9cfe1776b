#include "llm/prices.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

namespace cudaforge {
namespace {

constexpr size_t kMaxPriceFile = size_t{4} << 20;

// "*" matches any number of characters.
bool MatchesPattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  size_t star = std::string_view::npos, resume = 0;  // the last star, and where its match ends
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

int64_t LiteralChars(const Price& price) {
  return static_cast<int64_t>(price.pattern.size()) -
         std::count(price.pattern.begin(), price.pattern.end(), '*');
}

Status BadPrice(const std::string& where, const std::string& what) {
  return Status::InvalidArgument("price file: " + where + ": " + what);
}

Result<Price> ReadPrice(const std::string& pattern, const Json& json) {
  if (pattern.empty()) return BadPrice("models", "an empty name");
  if (!json.is_object()) return BadPrice(pattern, "expected an object");
  Price price;
  price.pattern = pattern;
  for (const auto& [field, value] : json.items()) {
    double* const target = field == "input"          ? &price.input
                           : field == "cached_input" ? &price.cached_input
                           : field == "output"       ? &price.output
                                                     : nullptr;
    if (target == nullptr) {
      return BadPrice(pattern,
                      "unknown field \"" + field + "\"; known are input, cached_input and output");
    }
    if (!value.is_number() || value.get<double>() < 0) {
      return BadPrice(pattern + "." + field, "expected dollars for a million tokens, 0 or more");
    }
    *target = value.get<double>();
  }
  if (!json.contains("input")) return BadPrice(pattern, "input is missing");
  if (!json.contains("output")) return BadPrice(pattern, "output is missing");
  if (!json.contains("cached_input")) price.cached_input = price.input;
  return price;
}

}  // namespace

Result<Prices> Prices::Parse(std::string_view text) {
  const Result<Json> json = ParseJson(text, {.max_bytes = kMaxPriceFile, .max_depth = 8});
  if (!json.ok()) return Status::InvalidArgument("price file: " + json.status().message());
  if (!json->is_object() || json->size() != 1 || !MemberOrNull(*json, "models").is_object()) {
    return BadPrice("top level", "expected {\"models\": {NAME: {...}}} and nothing else");
  }
  Prices prices;
  for (const auto& [pattern, value] : (*json)["models"].items()) {
    CF_ASSIGN_OR_RETURN(Price price, ReadPrice(pattern, value));
    prices.prices_.push_back(std::move(price));
  }
  std::stable_sort(
      prices.prices_.begin(), prices.prices_.end(),
      [](const Price& a, const Price& b) { return LiteralChars(a) > LiteralChars(b); });
  return prices;
}

Result<Prices> Prices::Load(const std::string& path) {
  CF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxPriceFile));
  Result<Prices> prices = Parse(text);
  if (!prices.ok()) return Status::InvalidArgument(path + ": " + prices.status().message());
  prices->name_ += " " + path;
  return prices;
}

const Price* Prices::Find(std::string_view model) const {
  for (const Price& price : prices_) {
    if (MatchesPattern(price.pattern, model)) return &price;
  }
  return nullptr;
}

const Price* Prices::Find(std::string_view provider, std::string_view model) const {
  for (const std::string& name : {std::string(model), ModelOf(provider), std::string(provider)}) {
    const Price* price = name.empty() ? nullptr : Find(name);
    if (price != nullptr) return price;
  }
  return nullptr;
}

std::string ModelOf(std::string_view provider) {
  return std::string(provider.substr(provider.find(':') + 1));  // npos + 1 is 0
}

double Dollars(const Price& price, const Usage& usage) {
  const int64_t input = *usage.input_tokens;
  const int64_t cached = usage.cached_input_tokens.value_or(0);
  const auto cost = [](int64_t tokens, double rate) { return static_cast<double>(tokens) * rate; };
  const double in = cached > input
                        ? cost(cached, std::max(price.input, price.cached_input))
                        : cost(input - cached, price.input) + cost(cached, price.cached_input);
  return (in + cost(*usage.output_tokens, price.output)) / 1e6;
}

}  // namespace cudaforge
