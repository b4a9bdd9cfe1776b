// Providers on this machine: a program that answers, and a folder that an agent or a human answers
// in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "llm/provider.h"

namespace cudaforge {

// Starts argv anew for each request, with this process's environment and no shell. One JSON object
// on standard input: {"role": "coder"|"judge", "messages": [{"role", "content"}], "limits":
// {"max_output_tokens", "max_reply_bytes", "total_seconds"}}. One on standard output: {"content":
// text} with, optionally, "usage": {"input_tokens", "cached_input_tokens", "output_tokens"},
// "model" and "finish_reason". Another exit code than 0 is kUnavailable, with the last lines of
// standard error. Killed with its process group when the time is over or on cancellation. Errors
// hold none of `secrets`, nor a part of one where they were cut short. kInvalidArgument, at once,
// for a program that is not there (without a slash: on PATH) or not executable.
// REQUIRES: argv is not empty.
Result<std::unique_ptr<Provider>> MakeCommandProvider(std::vector<std::string> argv,
                                                      std::vector<std::string> secrets = {});

// Puts each request, the same object as a command's, into `folder` as NNNN-ROLE.request.json, with
// a number above all that are there, and waits for the answer: NNNN-ROLE.reply.json, an object as a
// command writes it, or NNNN-ROLE.reply.txt, whose text is the content. A reply counts once it has
// been there unchanged for 0.3 s and is not empty; best written elsewhere and renamed. It must be a
// plain file. Makes the folder. Nothing is removed afterwards. `secrets` as for a command. Errors:
// kIoError for the folder.
Result<std::unique_ptr<Provider>> MakeMailboxProvider(const std::string& folder,
                                                      std::vector<std::string> secrets = {});

}  // namespace cudaforge
