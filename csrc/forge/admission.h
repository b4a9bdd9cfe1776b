// Which records of a pack become this machine's own.
#pragma once

#include <functional>

#include "base/status.h"
#include "cache/record.h"
#include "forge/region.h"

namespace cudaforge {

// A device of this machine, and what forges for it work with.
struct Bench {
  DeviceArch arch;
  Workshop workshop;
};
using FindBench = std::function<Result<Bench>(DeviceType device)>;

// Compiles a record's source for this machine and runs it on every input set; `record` gets the
// binary built here and this build's versions: its race, against the same torch, still counts. Of a
// record without a kernel, that it is of this build and device. Errors: kUnsupported, of another
// build or device, or too large for this machine; kInvalidArgument, not proven here; what this
// machine lacks.
Status AdmitRecord(const FindBench& bench, CacheRecord* record);

}  // namespace cudaforge
