// Decides which records of a pack this machine accepts.
#pragma once

#include <functional>

#include "base/status.h"
#include "cache/record.h"
#include "forge/region.h"

namespace cudaforge {

// A device of this machine, and the tools that forges for it use.
struct Bench {
  DeviceArch arch;
  Workshop workshop;
};
using FindBench = std::function<Result<Bench>(DeviceType device)>;

// Compiles a record's source for this machine and runs it on every input set. On success `record`
// gets the new binary and this build's versions. The recorded race stays valid, because torch must
// be the same. Of a record without a kernel, checks only build and device. Errors: kUnsupported
// (another build or device, or too large for this machine), kInvalidArgument (not proven here), and
// what this machine lacks.
Status AdmitRecord(const FindBench& bench, CacheRecord* record);

}  // namespace cudaforge
