// The verifier's side of verify/messages.h: serves regions and candidates, one after another.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "signature/op_signature.h"
#include "verify/device_memory.h"
#include "verify/region_reference.h"

namespace cudaforge {

struct VerifierSetup {
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
};

// The part of the service that needs libtorch: computes the answers of regions.
class Reference {
 public:
  virtual ~Reference() = default;
  // Returns the answers of a region, and applies its numerics settings. `memory` must outlive them;
  // `free_bytes` are the device's. kUnsupported: the region cannot be judged.
  virtual Result<std::unique_ptr<RegionReference>> Open(const OpSignature& region,
                                                        DeviceMemory& memory,
                                                        int64_t free_bytes) = 0;
};
// Called once, for "hello". kUnavailable says what this machine lacks.
using MakeReference = std::function<Result<std::unique_ptr<Reference>>(const VerifierSetup& setup)>;

// The implementation, in the part of verify that needs libtorch.
Result<std::unique_ptr<Reference>> MakeAtenReference(const VerifierSetup& setup);

// Serves until the other side closes (Ok). An error: it violated the protocol.
Status ServeVerifier(int socket, const MakeReference& make_reference);

}  // namespace cudaforge
