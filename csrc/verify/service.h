// The verifier's side of verify/messages.h: one region after another, one candidate after another.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/checker.h"

namespace cudaforge {

struct VerifierSetup {
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
};

// What the service has of libtorch.
class Reference {
 public:
  virtual ~Reference() = default;
  // As RegionChecker::Create, with the numerics of the signature in force.
  virtual Result<std::unique_ptr<RegionChecker>> Check(const OpSignature& region,
                                                       double seconds) = 0;
};
// Called once, for "hello". kUnavailable says what this machine lacks.
using MakeReference = std::function<Result<std::unique_ptr<Reference>>(const VerifierSetup& setup)>;

// The one there is; in the part of verify that needs libtorch.
Result<std::unique_ptr<Reference>> MakeAtenReference(const VerifierSetup& setup);

// Serves until the other side is gone (Ok). An error: it broke the protocol.
Status ServeVerifier(int socket, const MakeReference& make_reference);

}  // namespace cudaforge
