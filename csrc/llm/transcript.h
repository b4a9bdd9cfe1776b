// Recordings: saves every exchange with a provider in a file, and replays them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "llm/provider.h"

namespace cudaforge {

// Passes requests to `inner` and saves each exchange in `folder`, which it creates, as
// NNNN-exchange.json: {"provider", "request", "reply"} or {"provider", "request", "error": {"code",
// "message"}}. Continues existing numbers, in the order in which exchanges end. Replaces `secrets`
// by "[key]". kIoError from Complete: the exchange cannot be saved.
Result<std::unique_ptr<Provider>> MakeRecordingProvider(const std::string& folder,
                                                        std::unique_ptr<Provider> inner,
                                                        std::vector<std::string> secrets);

// Replays the exchanges of `folder`, reply or error. Answers a request by the first unused exchange
// with the same role and messages, ignoring the number in a prompt's marks. If there is none
// (prompts hold measured times), by the first of the same role; Reply::note then describes the
// difference. kNotFound: no recording, or from Complete, all exchanges of the role were used.
// kCorruption names a file that is unreadable or over 16 MiB, or a folder over 256 MiB.
Result<std::unique_ptr<Provider>> MakeReplayProvider(const std::string& folder);

}  // namespace cudaforge
