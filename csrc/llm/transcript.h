// Recordings: every exchange with a provider in a file of its own, and a provider that gives them
// back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "llm/provider.h"

namespace cudaforge {

// Passes requests on to `inner` and saves each exchange in `folder`, which it makes, as
// NNNN-exchange.json: {"provider", "request", "reply"} or {"provider", "request", "error": {"code",
// "message"}}. Numbers go on from those that are there, in the order in which exchanges end. Where
// one of `secrets` occurs, "[key]" is written. Complete fails with kIoError when the exchange
// cannot be saved.
Result<std::unique_ptr<Provider>> MakeRecordingProvider(const std::string& folder,
                                                        std::unique_ptr<Provider> inner,
                                                        std::vector<std::string> secrets);

// Gives back what was recorded in `folder`, reply or error, byte for byte and at once. A request is
// answered by the first recorded exchange not yet given back that has the same role and messages,
// the number in a prompt's marks aside; where there is none, as prompts hold measured times, by the
// first of the same role, and Reply::note says where the two requests differ. Errors: kNotFound
// when nothing is recorded there, and of Complete when all exchanges of the role were given back;
// kCorruption names the file that cannot be read, is over 16 MiB, or the folder when its exchanges
// are over 256 MiB.
Result<std::unique_ptr<Provider>> MakeReplayProvider(const std::string& folder);

}  // namespace cudaforge
