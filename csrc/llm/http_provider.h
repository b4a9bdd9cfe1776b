// A chat service over HTTP: one protocol, one address, retries.
#pragma once

#include <memory>
#include <string>

#include "llm/chat_protocol.h"
#include "llm/endpoint.h"
#include "llm/provider.h"
#include "llm/retry.h"

namespace cudaforge {

struct HttpProviderOptions {
  Endpoint endpoint;
  std::string key;  // may be empty; CheckKey has accepted it
  bool stream = true;
  RetryPolicy retry;
};

std::unique_ptr<Provider> MakeHttpProvider(std::unique_ptr<ChatProtocol> protocol,
                                           HttpProviderOptions options);

}  // namespace cudaforge
