#include "target/cuda/on_chip_scrub.h"

#include <utility>

namespace cudaforge {
namespace {

constexpr unsigned kScrubThreads = 256;
constexpr int kScrubRounds = 4;

}  // namespace

Result<OnChipScrub> OnChipScrub::Load(const CudaContextPtr& context, const std::string& cubin) {
  CF_ASSIGN_OR_RETURN(CudaModule module, CudaModule::Load(context, cubin));
  OnChipScrub scrub(context, std::move(module));
  CF_ASSIGN_OR_RETURN(scrub.shared_, scrub.module_.Kernel("scrub_shared"));
  CF_ASSIGN_OR_RETURN(scrub.local_, scrub.module_.Kernel("scrub_local"));
  CF_ASSIGN_OR_RETURN(const int multiprocessors, context->Attribute(cu::kMultiprocessors));
  CF_ASSIGN_OR_RETURN(const int shared_bytes, context->Attribute(cu::kSharedPerBlockOptin));
  CF_ASSIGN_OR_RETURN(const int threads, context->Attribute(cu::kThreadsPerMultiprocessor));
  CF_RETURN_IF_ERROR(context->Check(context->api().FunctionSetAttribute(
                                        scrub.shared_, cu::kFunctionMaxDynamicShared, shared_bytes),
                                    "cuFuncSetAttribute"));
  scrub.multiprocessors_ = static_cast<unsigned>(multiprocessors);
  scrub.shared_bytes_ = static_cast<unsigned>(shared_bytes);
  scrub.local_blocks_ = scrub.multiprocessors_ * (static_cast<unsigned>(threads) / kScrubThreads);
  return scrub;
}

Status OnChipScrub::Run(cu::Stream stream, uint64_t seed) const {
  CF_RETURN_IF_ERROR(context_->MakeCurrent());
  const cu::DriverApi& api = context_->api();
  unsigned words = shared_bytes_ / 4;
  int rounds = kScrubRounds;
  cu::DevicePtr sink = 0;
  cu::LaunchConfig config;
  config.block[0] = kScrubThreads;
  config.stream = stream;
  config.grid[0] = local_blocks_;
  void* local_params[] = {&seed, &rounds, &sink};
  CF_RETURN_IF_ERROR(context_->Check(api.LaunchKernelEx(&config, local_, local_params, nullptr),
                                     "scrubbing local memory"));
  config.grid[0] = 2 * multiprocessors_;
  config.shared_bytes = shared_bytes_;
  void* shared_params[] = {&seed, &words, &rounds, &sink};
  return context_->Check(api.LaunchKernelEx(&config, shared_, shared_params, nullptr),
                         "scrubbing shared memory");
}

}  // namespace cudaforge
