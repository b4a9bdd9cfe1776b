// What the user's process and the verifier say to each other, in frames of the worker's protocol
// (worker/protocol.h). Torch-free. Both are this build's: a message that is odd is a fault of ours.
//
// Requests and their replies (a reply without "ok": true carries "code", the name of a StatusCode,
// and "error"; "fatal": true says that the verifier ends now):
//   {"command":"hello","protocol":4,"device","device_index","worker":path,"cxx",
//    "cuda_search_paths":[]} -> {"ok":true}
//   {"command":"open","region":{},"seconds":x (absent: without limit)}
//       -> {"ok":true,"arch":"cuda:sm_90a","spent":{} (PhaseSeconds)}
//   {"command":"begin","compile_timeout_ms":n,"run_timeout_ms":n,"metrics":b} -> {"ok":true}
//   {"command":"evaluate","request":{} (see RequestToJson)}, fds [binary] where it was compiled
//       -> {"ok":true,"proof_seconds":x,"spent":{},"evaluation":{} (see EvaluationToJson)}, fds
//       [binary] where a kernel was proven; or {"ok":true,"proof_seconds":x,"spent","code","error"}
//   {"command":"facts"} -> {"ok":true,"facts":{}}
//   {"command":"close"} -> {"ok":true}; the region's memory is given back
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "verify/evaluator.h"
#include "worker/protocol.h"

namespace cudaforge {

inline constexpr int kVerifierProtocol = 4;

// Times are SteadySeconds, which all processes of a machine share. The binary of a candidate that
// was compiled travels beside it.
Json RequestToJson(const EvaluationRequest& request);
Result<EvaluationRequest> RequestFromJson(const Json& json, std::string binary);

Json SpentToJson(const PhaseSeconds& spent);
Result<PhaseSeconds> SpentFromJson(const Json& json);

// The binary of a proven kernel travels beside it.
Json EvaluationToJson(const Evaluation& evaluation);
// `candidate`: what was evaluated. `binary`: of a proven kernel.
Result<Evaluation> EvaluationFromJson(const Json& json, const Candidate& candidate,
                                      std::string binary);

// "code" and "error" of an error, in `body`.
void PutError(const Status& status, Json* body);
// The error that stands in `body`; kInternal where there is none that can be read.
Status ErrorIn(const Json& body);

}  // namespace cudaforge
