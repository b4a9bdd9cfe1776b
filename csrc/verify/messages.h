// Messages between the user's process and the verifier, in frames of worker/protocol.h. Without
// torch. docs/messages.md lists them. Both programs are from one build: an invalid message is our
// bug.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "verify/evaluator.h"
#include "worker/protocol.h"

namespace cudaforge {

inline constexpr int kVerifierProtocol = 4;

// Times are SteadySeconds, which all processes of a machine share. The binary of a compiled
// candidate is sent as a descriptor.
Json RequestToJson(const EvaluationRequest& request);
Result<EvaluationRequest> RequestFromJson(const Json& json, std::string binary);

Json SpentToJson(const PhaseSeconds& spent);
Result<PhaseSeconds> SpentFromJson(const Json& json);

// The binary of a proven kernel is sent as a descriptor.
Json EvaluationToJson(const Evaluation& evaluation);
// `candidate`: the one evaluated. `binary`: of a proven kernel.
Result<Evaluation> EvaluationFromJson(const Json& json, const Candidate& candidate,
                                      std::string binary);

// Adds "code" and "error" to `body`.
void PutError(const Status& status, Json* body);
// Returns the error in `body`; kInternal if it is unreadable.
Status ErrorIn(const Json& body);

}  // namespace cudaforge
