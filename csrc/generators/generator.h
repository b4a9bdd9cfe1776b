// Built-in kernel generators. A generator makes a space of candidates for a signature, and searches
// it by their timings.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// The result for a candidate: nanoseconds if it was correct and timed, else empty.
struct SearchFeedback {
  bool correct = false;
  std::optional<double> ns;
};

// A deterministic search over one region's candidates: a first guess, then neighbours of the best
// so far.
class CandidateSearch {
 public:
  virtual ~CandidateSearch() = default;
  // Returns the next candidate to try, or nothing at the end of the space.
  virtual std::optional<Candidate> Next() = 0;
  // Reports the result of the `nth` candidate from Next(), counted from 0. Next() may be called
  // before earlier results are known.
  virtual void Tell(size_t nth, const SearchFeedback& feedback) = 0;
};

struct Generator {
  std::string_view name;  // "rows": its candidates' author is "generator:rows"
  // Returns Ok if it can make `signature` for `target` ("cuda:sm_90a"). Cheap enough for
  // partitioning. kNotFound: not its kind of region. kUnsupported: names the unsupported part
  // ("aten::sort has no lowering").
  Status (*can_make)(const OpSignature& signature, std::string_view target);
  // kUnsupported: as can_make, or no candidate could be written.
  Result<std::unique_ptr<CandidateSearch>> (*search)(const OpSignature& signature,
                                                     const DeviceArch& arch);
};

// kUnsupported: the GPU's number of multiprocessors, which determines sizes, is unknown.
Status KnowsMultiprocessors(const DeviceArch& arch);

// All generators. Those that can make a region compete for it.
std::span<const Generator> Generators();

// Returns Ok if a generator can make the region; else the error of the first that handles its kind.
Status CanGenerate(const OpSignature& signature, std::string_view target);

// The ATen overloads ("aten::_softmax") that generators support: heavy anchors, and pointwise ops
// for their chains.
const std::vector<std::string>& AnchorOps();
const std::vector<std::string>& PointwiseOps();
// Returns true if a generator makes kernels for any of HeavyOps() on `target`.
bool GeneratesHeavyOps(std::string_view target);
// Returns Ok if `signature` is a region around one of HeavyOps(), with pointwise chains. Agents
// write its kernel, except for products that a generator makes (generators/tiles/search.h).
// kUnsupported: names what else is in it.
Status IsAgentRegion(const OpSignature& signature);

}  // namespace cudaforge
