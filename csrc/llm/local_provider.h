// Providers on this machine: a program, or a folder in which an agent or a human answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "llm/provider.h"

namespace cudaforge {

// Starts argv for each request, with this process's environment and no shell. docs/agents.md has
// the request on standard input and the reply on standard output. A nonzero exit code is
// kUnavailable, with the end of standard error. Killed with its process group on time-out or
// cancellation. Errors hold no (part of a) secret. kInvalidArgument, at once: the program is
// missing (without a slash: on PATH) or not executable. REQUIRES: argv is not empty.
Result<std::unique_ptr<Provider>> MakeCommandProvider(std::vector<std::string> argv,
                                                      std::vector<std::string> secrets = {});

// Writes each request (as for a command) into `folder` as NNNN-ROLE.request.json with the next
// number. Waits for NNNN-ROLE.reply.json (as by a command) or NNNN-ROLE.reply.txt (the content). A
// reply must be a plain file, not empty, and unchanged for 0.3 s; best written elsewhere and
// renamed. Creates the folder; removes nothing. `secrets` as for a command. kIoError: the folder.
Result<std::unique_ptr<Provider>> MakeMailboxProvider(const std::string& folder,
                                                      std::vector<std::string> secrets = {});

}  // namespace cudaforge
