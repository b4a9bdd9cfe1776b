#include "dispatch/region_meta.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "signature/from_aten_region.h"
#include "signature/op_signature.h"

namespace cudaforge {
namespace {

struct Parsed {
  std::string text;
  OpSignature signature;
};

struct Memo {
  std::mutex mutex;  // guards what follows
  std::unordered_map<int64_t, std::shared_ptr<const Parsed>> parsed;
};

// Keeps what was parsed; an id with another text than before is parsed again and not kept.
Result<std::shared_ptr<const Parsed>> Remember(int64_t id, const std::string& text) {
  static auto* const memos = new OfProcess<Memo>;  // a child may find its parent's mutex taken
  Memo& memo = memos->Get();
  {
    std::lock_guard lock(memo.mutex);
    auto it = memo.parsed.find(id);
    if (it != memo.parsed.end() && it->second->text == text) return it->second;
  }
  CF_ASSIGN_OR_RETURN(OpSignature signature, OpSignature::Parse(text));
  if (RegionId(signature.Key()) != id) return OtherRegion(id);
  auto parsed = std::make_shared<const Parsed>(Parsed{text, std::move(signature)});
  std::lock_guard lock(memo.mutex);
  memo.parsed.try_emplace(id, parsed);
  return parsed;
}

}  // namespace

Result<std::vector<at::Tensor>> MetaOutputs(size_t input_count, int64_t id,
                                            const std::string& signature) {
  CF_ASSIGN_OR_RETURN(const std::shared_ptr<const Parsed> parsed, Remember(id, signature));
  const OpSignature& region = parsed->signature;
  if (input_count != region.inputs.size()) {
    return Status::InvalidArgument(region.Describe() + " takes " +
                                   std::to_string(region.inputs.size()) + " inputs, not " +
                                   std::to_string(input_count));
  }
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    const TensorSpec& spec = region.output_spec(i);
    outputs.emplace_back(
        at::detail::empty_strided_meta(spec.sizes, spec.strides, ToScalarType(spec.dtype)));
  }
  return outputs;
}

}  // namespace cudaforge
