// Built-in kernel generators. A generator turns a signature into a
// space of candidates and walks it with the timings it is told.
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
  // The result of candidate `nth` of those that Next() gave, counted from 0. Some may be under way
  // while the next is asked for.
  virtual void Tell(size_t nth, const SearchFeedback& feedback) = 0;
};

struct Generator {
  std::string_view name;  // "rows": its candidates' author is "generator:rows"
  // Whether it can express `signature` for `target` ("cuda:sm_90a"); cheap enough for partitioning.
  // kNotFound: not its kind of region. kUnsupported says what cannot be expressed ("aten::sort has
  // no lowering").
  Status (*can_make)(const OpSignature& signature, std::string_view target);
  // Errors: kUnsupported, as of can_make, or where nothing could be written.
  Result<std::unique_ptr<CandidateSearch>> (*search)(const OpSignature& signature,
                                                     const DeviceArch& arch);
};

// kUnsupported where the GPU's number of multiprocessors is unknown: nothing can be sized by it.
Status KnowsMultiprocessors(const DeviceArch& arch);

// All of them. Those that can make a region compete for it.
std::span<const Generator> Generators();

// Whether a generator can make the region; else the first that knows its kind says why not.
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
