#include "llm/discreet_provider.h"

#include <utility>

#include "base/text.h"
#include "llm/secrets.h"

namespace cudaforge {
namespace {

// WithoutKeys for text in pieces: one filter for each key, in order.
class KeyFilterChain {
 public:
  explicit KeyFilterChain(const std::vector<std::string>& keys)
      : filters_(keys.begin(), keys.end()) {}

  std::string Pass(std::string_view piece) {
    std::string text(piece);
    for (KeyFilter& filter : filters_) text = filter.Pass(text);
    return text;
  }
  std::string Rest() {
    std::string text;
    for (KeyFilter& filter : filters_) {
      text = filter.Pass(text);
      text += filter.Rest();
    }
    return text;
  }

 private:
  std::vector<KeyFilter> filters_;
};

class DiscreetProvider : public Provider {
 public:
  DiscreetProvider(std::unique_ptr<Provider> inner, std::vector<std::string> secrets)
      : inner_(std::move(inner)), secrets_(std::move(secrets)) {}

  std::string name() const override { return inner_->name(); }
  bool is_metered() const override { return inner_->is_metered(); }
  bool is_replay() const override { return inner_->is_replay(); }

  Result<Reply> Complete(const LlmRequest& request, const Cancel& cancel,
                         const TextSink& on_text) override {
    KeyFilterChain filter(secrets_);
    const auto pass_on = [&on_text](const std::string& text) {
      if (!text.empty()) on_text(text);
    };
    TextSink filtered;
    if (on_text) filtered = [&](std::string_view text) { pass_on(filter.Pass(text)); };
    Result<Reply> reply = inner_->Complete(request, cancel, filtered);
    if (!reply.ok()) {
      return Status(reply.status().code(), WithoutKeys(reply.status().message(), secrets_));
    }
    if (on_text) pass_on(filter.Rest());
    reply->content = WithoutKeys(std::move(reply->content), secrets_);
    reply->model = Printable(WithoutKeys(std::move(reply->model), secrets_), 200);
    reply->finish_reason = Printable(WithoutKeys(std::move(reply->finish_reason), secrets_), 100);
    reply->note = Printable(WithoutKeys(std::move(reply->note), secrets_), 400);
    return reply;
  }

 private:
  const std::unique_ptr<Provider> inner_;
  const std::vector<std::string> secrets_;
};

}  // namespace

std::unique_ptr<Provider> MakeDiscreetProvider(std::unique_ptr<Provider> inner,
                                               std::vector<std::string> secrets) {
  return std::make_unique<DiscreetProvider>(std::move(inner), std::move(secrets));
}

}  // namespace cudaforge
