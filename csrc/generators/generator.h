// Built-in kernel generators. A generator turns a signature into a
// space of candidates and walks it with the timings it is told.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernel/candidate.h"
#include "signature/device_arch.h"
#include "signature/op_signature.h"

namespace cudaforge {

// What became of a candidate: nanoseconds when it was right and timed, else nothing.
struct SearchFeedback {
  bool correct = false;
  std::optional<double> ns;
};

// A deterministic walk over one region's candidates: a first guess, then neighbours of the best so
// far.
class CandidateSearch {
 public:
  virtual ~CandidateSearch() = default;
  // The next candidate to try, or nothing when the space is exhausted.
  virtual std::optional<Candidate> Next() = 0;
  // The result of the candidate that Next() gave last.
  virtual void Tell(const SearchFeedback& feedback) = 0;
};

// The search of the first generator that can express `signature` for `arch`. kUnsupported says what
// cannot be expressed ("aten::sort has no lowering").
Result<std::unique_ptr<CandidateSearch>> MakeSearch(const OpSignature& signature,
                                                    const DeviceArch& arch);

// Whether MakeSearch would succeed on `target` ("cuda:sm_90a"); cheap enough for partitioning.
Status CanGenerate(const OpSignature& signature, std::string_view target);

// ATen overloads ("aten::_softmax") that generators know: heavy anchors, and pointwise ops that may
// join them.
const std::vector<std::string>& AnchorOps();
const std::vector<std::string>& PointwiseOps();
// Whether a generator makes kernels for some of HeavyOps() on `target`.
bool GeneratesHeavyOps(std::string_view target);
// Whether `signature` is a region around one of HeavyOps(), with pointwise chains. Agents make its
// kernel, but for products that a generator makes (generators/product.h). kUnsupported says what
// else is in it.
Status IsAgentRegion(const OpSignature& signature);

}  // namespace cudaforge
