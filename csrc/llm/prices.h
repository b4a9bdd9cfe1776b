// What tokens cost, from a file that the user keeps: services change their prices, programs do not
// notice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/message.h"

namespace cudaforge {

// US dollars for a million tokens.
struct Price {
  std::string pattern;  // a model's name; "*" stands for any characters
  double input = 0;
  double cached_input = 0;
  double output = 0;
};

// An immutable list; thread-safe.
class Prices {
 public:
  Prices() = default;  // knows no model

  // {"models": {"gpt-5*": {"input": 1.25, "cached_input": 0.125, "output": 10}, ...}}; cached_input
  // may be left out and is then what input is. Errors: kInvalidArgument with the model and the
  // field, for anything else in it, and for numbers that are negative or not finite.
  static Result<Prices> Parse(std::string_view text);
  // Parse of a file's text; also kNotFound and kIoError.
  static Result<Prices> Load(const std::string& path);

  // The price whose pattern fits, the one with the most characters that are no "*" where several
  // do; nullptr for a model that none fits. Valid while this object is.
  const Price* Find(std::string_view model) const;

  // The price of `model`, which may be empty, else of the model in `provider` (Provider::name()),
  // else of `provider` itself; nullptr: unknown. Valid while this object is.
  const Price* Find(std::string_view provider, std::string_view model) const;

  // What a message calls it: with its path, where it was loaded from a file.
  const std::string& name() const { return name_; }

 private:
  std::string name_ = "the price file";
  std::vector<Price> prices_;  // the most particular first
};

// "gpt-5" of "openai:gpt-5", the whole where there is no colon.
std::string ModelOf(std::string_view provider);

// What `usage` costs at `price`, counts that contradict each other taken at the dearer rate.
// Without a count of cached tokens, all input costs what input costs.
// REQUIRES: input and output tokens are there.
double Dollars(const Price& price, const Usage& usage);

}  // namespace cudaforge
