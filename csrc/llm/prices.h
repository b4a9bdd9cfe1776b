// Prices of tokens, from a file that the user maintains, because services change their prices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/message.h"

namespace cudaforge {

// US dollars per million tokens.
struct Price {
  std::string pattern;  // a model's name; "*" matches any characters
  double input = 0;
  double cached_input = 0;
  double output = 0;
};

// An immutable list; thread-safe.
class Prices {
 public:
  Prices() = default;  // without prices

  // {"models": {"gpt-5*": {"input": 1.25, "cached_input": 0.125, "output": 10}, ...}}; cached_input
  // defaults to input. kInvalidArgument names model and field: any other content, and negative or
  // infinite numbers.
  static Result<Prices> Parse(std::string_view text);
  // Parse of a file; also kNotFound and kIoError.
  static Result<Prices> Load(const std::string& path);

  // The price with a matching pattern, the one with the most literal characters; nullptr if none
  // matches. Valid as long as this object.
  const Price* Find(std::string_view model) const;

  // The price of `model` (may be empty), else of the model in `provider` (Provider::name()), else
  // of `provider`; nullptr: unknown. Valid as long as this object.
  const Price* Find(std::string_view provider, std::string_view model) const;

  // The name in messages, with its path if it was loaded from a file.
  const std::string& name() const { return name_; }

 private:
  std::string name_ = "the price file";
  std::vector<Price> prices_;  // the most specific first
};

// "gpt-5" of "openai:gpt-5"; all of it without a colon.
std::string ModelOf(std::string_view provider);

// The cost of `usage` at `price`. Contradictory counts are charged at the higher rate. Without a
// count of cached tokens, all input costs the input price. REQUIRES: input and output tokens are
// known.
double Dollars(const Price& price, const Usage& usage);

}  // namespace cudaforge
