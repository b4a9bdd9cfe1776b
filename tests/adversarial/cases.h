// The cases of tests/adversarial: candidates as text, with the verdicts that they may get. The
// format of their files is in README.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/op_signature.h"

namespace cudaforge {

// A region of regions.json on one device.
struct NamedRegion {
  OpSignature signature;
  std::string items;    // range of a launch on the CPU, grid on CUDA: an expression
  std::string prelude;  // constants of its sizes, ahead of each candidate's text
};

struct Case {
  std::string name;
  std::string kind;  // "class" in the file
  std::string region;
  std::vector<std::string> verdicts;  // the names of those allowed; {"accepted"}: a control
  Candidate hostile;                  // or the control itself
  Candidate twin;                     // without the trigger; of a control, the same text
  bool is_control() const { return verdicts.front() == "accepted"; }
};

// `folder`: tests/adversarial. kInvalidArgument names the file and what is wrong.
Result<std::map<std::string, NamedRegion>> ReadRegions(const std::string& folder,
                                                       DeviceType device);
// Sorted by file and place. Every candidate fits its region's signature.
Result<std::vector<Case>> ReadCases(const std::string& folder, DeviceType device,
                                    const std::map<std::string, NamedRegion>& regions);

}  // namespace cudaforge
