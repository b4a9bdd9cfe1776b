#include "target/cuda/cuda_executable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "target/cuda/occupancy.h"
#include "target/cuda/tensor_map.h"
#include "target/launch_args.h"

namespace cudaforge {
namespace {

// Every kernel parameter but a tensor map is eight bytes: a pointer, an int64_t or a double.
union Slot {
  void* pointer;
  int64_t integer;
  double number;
};
static_assert(sizeof(Slot) == 8);

constexpr int kFirstTmaMajor = 9;  // compute capability

// A tensor map of the plan, without the buffer's address.
struct EncodedMap {
  cu::TensorMap map;
  BufferRef buffer;
};

// A parameter that is a tensor map.
struct MapParam {
  size_t param = 0;
  size_t map = 0;
};

struct CudaLaunch {
  std::string name;
  cu::Function function = nullptr;
  cu::LaunchConfig config;
  std::vector<cu::LaunchAttribute> attributes;
  EvaluatedArgs args;
  std::vector<MapParam> maps;
};

class CudaExecutable : public Executable {
 public:
  CudaExecutable(CudaContextPtr context, CudaModule module)
      : context_(std::move(context)), module_(std::move(module)) {}

  Status Prepare(const LaunchPlan& plan, const OpSignature& signature) {
    CF_ASSIGN_OR_RETURN(scratch_bytes_, EvaluateScratch(plan, signature));
    prepared_count_ = plan.prepared_bytes.size();
    zeroed_ = ZeroedScratch(plan);
    needs_.IncludeScratch(scratch_bytes_.size());
    CF_RETURN_IF_ERROR(PrepareMaps(plan, signature));
    preparing_needs_.IncludeScratch(scratch_bytes_.size());
    CF_RETURN_IF_ERROR(
        PrepareLaunches(plan.prepare, plan, signature, preparing_needs_, preparing_));
    return PrepareLaunches(plan.launches, plan, signature, needs_, launches_);
  }

  Status PrepareOperands(std::span<void* const> inputs, std::span<void* const> scratch,
                         const LaunchContext& context) const override {
    CF_RETURN_IF_ERROR(preparing_needs_.Check(inputs, {}, scratch));
    return Enqueue(preparing_, inputs, {}, scratch, context);
  }

  Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                std::span<void* const> scratch, const LaunchContext& context) const override {
    CF_RETURN_IF_ERROR(needs_.Check(inputs, outputs, scratch));
    return Enqueue(launches_, inputs, outputs, scratch, context);
  }

  Result<Json> LaunchFacts() const override {
    CF_RETURN_IF_ERROR(context_->MakeCurrent());
    CF_ASSIGN_OR_RETURN(const MultiprocessorLimits sm, Multiprocessor());
    CF_ASSIGN_OR_RETURN(const int sms, context_->Attribute(cu::kMultiprocessors));
    Json facts = Json::array();
    for (const CudaLaunch& launch : launches_) {
      CF_ASSIGN_OR_RETURN(Json fact, FactsOf(launch, sm, sms));
      facts.push_back(std::move(fact));
    }
    return facts;
  }

 private:
  using Pointers = std::span<void* const>;

  Status PrepareLaunches(const std::vector<cudaforge::Launch>& launches, const LaunchPlan& plan,
                         const OpSignature& signature, BufferNeeds& needs,
                         std::vector<CudaLaunch>& to) {
    for (const cudaforge::Launch& launch : launches) {
      CudaLaunch ready;
      ready.name = launch.kernel;
      CF_ASSIGN_OR_RETURN(ready.function, module_.Kernel(launch.kernel));
      CF_ASSIGN_OR_RETURN(ready.args, EvaluateArgs(launch, plan, signature));
      for (size_t i = 0; i < ready.args.size(); ++i) {
        const EvaluatedArg& arg = ready.args[i];
        if (arg.is_buffer) needs.Include(arg.buffer);
        if (arg.is_tensor_map) ready.maps.push_back({i, arg.tensor_map});
      }
      if (const Status status = Configure(launch, signature, ready); !status.ok()) {
        return {status.code(), "launch of '" + launch.kernel + "': " + status.message()};
      }
      to.push_back(std::move(ready));
    }
    return Status::Ok();
  }

  Status Enqueue(const std::vector<CudaLaunch>& launches, Pointers inputs, Pointers outputs,
                 Pointers scratch, const LaunchContext& context) const {
    const auto stream = static_cast<cu::Stream>(context.stream);
    for (size_t i : zeroed_) {
      if (scratch_bytes_[i] == 0) continue;
      const cu::Result error =
          context_->api().MemsetD8Async(reinterpret_cast<cu::DevicePtr>(scratch[i]), 0,
                                        static_cast<size_t>(scratch_bytes_[i]), stream);
      if (error != 0) return context_->Check(error, "cuMemsetD8Async");
    }
    if (maps_.empty()) return LaunchAll(launches, inputs, outputs, scratch, nullptr, stream);
    return LaunchWithMaps(launches, inputs, outputs, scratch, stream);
  }

  Status PrepareMaps(const LaunchPlan& plan, const OpSignature& signature) {
    if (plan.tensor_maps.empty()) return Status::Ok();
    if (plan.tensor_maps.size() > kMaxTensorMaps) {
      return Status::InvalidArgument("more than 32 tensor maps");
    }
    CF_ASSIGN_OR_RETURN(const int major, context_->Attribute(cu::kCapabilityMajor));
    if (major < kFirstTmaMajor) {
      return Status::InvalidArgument("this device has no tensor maps; sm_90 and later do");
    }
    for (const TensorMap& map : plan.tensor_maps) {
      EncodedMap ready;
      CF_ASSIGN_OR_RETURN(const EvaluatedTensorMap numbers,
                          EvaluateTensorMap(map, plan, signature));
      CF_ASSIGN_OR_RETURN(ready.map, EncodeTensorMap(context_->api(), numbers));
      ready.buffer = BufferOf(map.of, plan);
      needs_.Include(ready.buffer);
      maps_.push_back(ready);
    }
    return Status::Ok();
  }

  // Not inlined: launches without maps need none of its aligned stack.
  [[gnu::noinline]] Status LaunchWithMaps(const std::vector<CudaLaunch>& launches, Pointers inputs,
                                          Pointers outputs, Pointers scratch,
                                          cu::Stream stream) const {
    std::array<cu::TensorMap, kMaxTensorMaps> maps;
    for (size_t i = 0; i < maps_.size(); ++i) {
      maps[i] = maps_[i].map;
      const BufferRef& of = maps_[i].buffer;
      if (of.kind == LaunchArg::Kind::kOutput && outputs.empty()) continue;
      void* const address = Resolve(of, inputs, outputs, scratch);
      if (address == nullptr) continue;  // not used by these launches: see PrepareOperands
      const cu::Result error = context_->api().TensorMapReplaceAddress(&maps[i], address);
      if (error != 0) return context_->Check(error, "cuTensorMapReplaceAddress");
    }
    return LaunchAll(launches, inputs, outputs, scratch, maps.data(), stream);
  }

  // `maps`: those of the plan, with addresses; nullptr if it has none.
  Status LaunchAll(const std::vector<CudaLaunch>& launches, Pointers inputs, Pointers outputs,
                   Pointers scratch, cu::TensorMap* maps, cu::Stream stream) const {
    std::array<Slot, kMaxLaunchArgs> slots;
    std::array<void*, kMaxLaunchArgs> params;
    for (const CudaLaunch& launch : launches) {
      for (size_t i = 0; i < launch.args.size(); ++i) {
        const EvaluatedArg& arg = launch.args[i];
        if (arg.is_buffer) {
          slots[i].pointer = Resolve(arg.buffer, inputs, outputs, scratch);
        } else if (arg.is_float) {
          slots[i].number = arg.number;
        } else {
          slots[i].integer = arg.integer;
        }
        params[i] = &slots[i];
      }
      for (const MapParam& map : launch.maps) params[map.param] = &maps[map.map];
      cu::LaunchConfig config = launch.config;
      config.stream = stream;
      config.attributes = launch.attributes.data();
      config.num_attributes = static_cast<unsigned>(launch.attributes.size());
      const cu::Result error =
          context_->api().LaunchKernelEx(&config, launch.function, params.data(), nullptr);
      if (error != 0) return context_->Check(error, launch.name.c_str());
    }
    return Status::Ok();
  }

  Result<MultiprocessorLimits> Multiprocessor() const {
    MultiprocessorLimits sm;
    CF_ASSIGN_OR_RETURN(sm.capability_major, context_->Attribute(cu::kCapabilityMajor));
    CF_ASSIGN_OR_RETURN(sm.warp_size, context_->Attribute(cu::kWarpSize));
    CF_ASSIGN_OR_RETURN(sm.threads, context_->Attribute(cu::kThreadsPerMultiprocessor));
    CF_ASSIGN_OR_RETURN(sm.blocks, context_->Attribute(cu::kBlocksPerMultiprocessor));
    CF_ASSIGN_OR_RETURN(sm.registers, context_->Attribute(cu::kRegistersPerMultiprocessor));
    CF_ASSIGN_OR_RETURN(sm.registers_per_block, context_->Attribute(cu::kRegistersPerBlock));
    CF_ASSIGN_OR_RETURN(sm.shared_bytes, context_->Attribute(cu::kSharedPerMultiprocessor));
    CF_ASSIGN_OR_RETURN(sm.reserved_shared_bytes, context_->Attribute(cu::kReservedSharedPerBlock));
    return sm;
  }

  Result<Json> FactsOf(const CudaLaunch& launch, const MultiprocessorLimits& sm, int sms) const {
    const unsigned* grid = launch.config.grid;
    const unsigned* block = launch.config.block;
    const int threads = static_cast<int>(block[0] * block[1] * block[2]);
    CF_ASSIGN_OR_RETURN(const int registers, FunctionFact(launch, cu::kFunctionRegisters));
    CF_ASSIGN_OR_RETURN(const int local, FunctionFact(launch, cu::kFunctionLocalBytes));
    CF_ASSIGN_OR_RETURN(const int fixed, FunctionFact(launch, cu::kFunctionSharedBytes));
    int resident = 0;
    CF_RETURN_IF_ERROR(
        context_->Check(context_->api().OccupancyBlocks(&resident, launch.function, threads,
                                                        launch.config.shared_bytes),
                        "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
    const BlockLimits limits =
        LimitsOfBlocks(sm, {threads, registers, int64_t{fixed} + launch.config.shared_bytes});
    const std::pair<const char*, int> named[] = {{"warps", limits.warps},
                                                 {"blocks", limits.blocks},
                                                 {"registers", limits.registers},
                                                 {"shared", limits.shared}};
    const int least = std::min({limits.warps, limits.blocks, limits.registers, limits.shared});
    Json by_resource = Json::object();
    Json limited_by = Json::array();
    for (const auto& [name, blocks] : named) {
      if (blocks != BlockLimits::kNoLimit) by_resource[name] = blocks;
      if (blocks == least) limited_by.push_back(name);
    }
    const int warps = (threads + sm.warp_size - 1) / sm.warp_size;
    const double blocks = 1.0 * grid[0] * grid[1] * grid[2];
    return Json{{"kernel", launch.name},
                {"grid", {grid[0], grid[1], grid[2]}},
                {"block", {block[0], block[1], block[2]}},
                {"registers", registers},
                {"local_bytes", local},
                {"static_shared_bytes", fixed},
                {"dynamic_shared_bytes", launch.config.shared_bytes},
                {"blocks_per_sm", resident},
                {"occupancy", static_cast<double>(resident) * warps * sm.warp_size / sm.threads},
                {"limits", by_resource},
                {"limited_by", limited_by},
                {"waves", resident == 0 ? 0.0 : blocks / (static_cast<double>(sms) * resident)}};
  }

  Status Configure(const cudaforge::Launch& launch, const OpSignature& signature,
                   CudaLaunch& ready) const {
    CF_RETURN_IF_ERROR(CheckParams(ready));
    CF_RETURN_IF_ERROR(SetGeometry(launch, signature, ready));
    CF_RETURN_IF_ERROR(SetShared(launch, signature, ready));
    return CheckThreads(ready);
  }

  // Without this check, a mismatch of parameters would read past the argument array. Older drivers
  // cannot report parameters.
  Status CheckParams(const CudaLaunch& ready) const {
    const cu::DriverApi& api = context_->api();
    if (api.FunctionGetParamInfo == nullptr) return Status::Ok();
    size_t count = 0;
    size_t offset = 0;
    size_t bytes = 0;
    while (count <= kMaxLaunchArgs &&
           api.FunctionGetParamInfo(ready.function, count, &offset, &bytes) == 0) {
      const bool map = count < ready.args.size() && ready.args[count].is_tensor_map;
      if (bytes != (map ? sizeof(cu::TensorMap) : sizeof(Slot))) {
        return Status::InvalidArgument(
            "parameter " + std::to_string(count) + " of the kernel has " + std::to_string(bytes) +
            (map ? " bytes; a tensor map (128) is passed"
                 : " bytes; a pointer, int64_t or double (8) is passed"));
      }
      ++count;
    }
    if (count == ready.args.size()) return Status::Ok();
    return Status::InvalidArgument("the kernel has " + std::to_string(count) +
                                   " parameters and the plan gives " +
                                   std::to_string(ready.args.size()));
  }

  Status SetGeometry(const cudaforge::Launch& launch, const OpSignature& signature,
                     CudaLaunch& ready) const {
    static constexpr cu::Attribute kGridLimits[3] = {cu::kMaxGridX, cu::kMaxGridY, cu::kMaxGridZ};
    int64_t cluster_blocks = 1;
    cu::LaunchAttribute clusters{.id = cu::kLaunchAttributeCluster};
    for (size_t d = 0; d < 3; ++d) {
      CF_ASSIGN_OR_RETURN(const int64_t grid, launch.grid[d].Evaluate(signature));
      CF_ASSIGN_OR_RETURN(const int64_t block, launch.block[d].Evaluate(signature));
      CF_ASSIGN_OR_RETURN(const int64_t cluster, launch.attributes.cluster[d].Evaluate(signature));
      CF_ASSIGN_OR_RETURN(const int limit, context_->Attribute(kGridLimits[d]));
      if (grid < 1 || grid > limit) {
        return Status::InvalidArgument("grid[" + std::to_string(d) + "] = " + std::to_string(grid) +
                                       "; this device allows 1 to " + std::to_string(limit));
      }
      if (block < 1 || block > 1024) {
        return Status::InvalidArgument("block[" + std::to_string(d) +
                                       "] = " + std::to_string(block) + "; allowed are 1 to 1024");
      }
      if (cluster < 1 || cluster > 16 || grid % cluster != 0) {
        return Status::InvalidArgument(
            "cluster[" + std::to_string(d) + "] = " + std::to_string(cluster) +
            " must be 1 to 16 and divide the grid's " + std::to_string(grid));
      }
      cluster_blocks *= cluster;
      ready.config.grid[d] = static_cast<unsigned>(grid);
      ready.config.block[d] = static_cast<unsigned>(block);
      clusters.value.cluster[d] = static_cast<unsigned>(cluster);
    }
    if (cluster_blocks > 1) {
      CF_RETURN_IF_ERROR(AllowCluster(cluster_blocks, ready));
      ready.attributes.push_back(clusters);
    }
    const auto set = [&](bool wanted, int id) {
      if (wanted) ready.attributes.push_back({.id = id, .value = {.flag = 1}});
    };
    set(launch.attributes.cooperative, cu::kLaunchAttributeCooperative);
    set(launch.attributes.programmatic_dependent_launch, cu::kLaunchAttributeDependentLaunch);
    return Status::Ok();
  }

  Status AllowCluster(int64_t blocks, CudaLaunch& ready) const {
    CF_ASSIGN_OR_RETURN(const int supported, context_->Attribute(cu::kClusterLaunch));
    if (supported == 0) return Status::InvalidArgument("this device has no thread block clusters");
    if (blocks > 16)
      return Status::InvalidArgument("a cluster of " + std::to_string(blocks) +
                                     " blocks; 16 at most");
    if (blocks > 8) {
      CF_RETURN_IF_ERROR(context_->Check(
          context_->api().FunctionSetAttribute(ready.function, cu::kFunctionNonPortableCluster, 1),
          "allowing a cluster of more than 8 blocks"));
    }
    return Status::Ok();
  }

  Status SetShared(const cudaforge::Launch& launch, const OpSignature& signature,
                   CudaLaunch& ready) const {
    CF_ASSIGN_OR_RETURN(const int64_t dynamic, launch.dynamic_shared_bytes.Evaluate(signature));
    CF_ASSIGN_OR_RETURN(const int fixed, FunctionFact(ready, cu::kFunctionSharedBytes));
    CF_ASSIGN_OR_RETURN(const int limit, context_->Attribute(cu::kSharedPerBlockOptin));
    if (dynamic < 0 || dynamic > limit - fixed) {
      return Status::InvalidArgument(
          std::to_string(dynamic) + " bytes of dynamic and " + std::to_string(fixed) +
          " of static shared memory; this device allows " + std::to_string(limit));
    }
    ready.config.shared_bytes = static_cast<unsigned>(dynamic);
    if (dynamic == 0) return Status::Ok();
    // The attribute belongs to the kernel, so the largest request of its launches must be set.
    CF_ASSIGN_OR_RETURN(const int allowed, FunctionFact(ready, cu::kFunctionMaxDynamicShared));
    if (dynamic <= allowed) return Status::Ok();
    return context_->Check(
        context_->api().FunctionSetAttribute(ready.function, cu::kFunctionMaxDynamicShared,
                                             static_cast<int>(dynamic)),
        "asking for dynamic shared memory");
  }

  Status CheckThreads(const CudaLaunch& ready) const {
    const unsigned* block = ready.config.block;
    const int64_t threads = int64_t{block[0]} * block[1] * block[2];
    CF_ASSIGN_OR_RETURN(const int limit, FunctionFact(ready, cu::kFunctionMaxThreads));
    if (threads <= limit) return Status::Ok();
    CF_ASSIGN_OR_RETURN(const int registers, FunctionFact(ready, cu::kFunctionRegisters));
    return Status::InvalidArgument(std::to_string(threads) +
                                   " threads a block; this kernel allows " + std::to_string(limit) +
                                   " (" + std::to_string(registers) + " registers a thread)");
  }

  Result<int> FunctionFact(const CudaLaunch& ready, cu::FunctionAttribute attribute) const {
    int value = 0;
    CF_RETURN_IF_ERROR(
        context_->Check(context_->api().FunctionGetAttribute(&value, attribute, ready.function),
                        "cuFuncGetAttribute"));
    return value;
  }

  CudaContextPtr context_;
  CudaModule module_;
  BufferNeeds needs_, preparing_needs_;
  std::vector<EncodedMap> maps_;
  std::vector<CudaLaunch> preparing_, launches_;
};

}  // namespace

Result<std::unique_ptr<Executable>> LoadCuda(CudaContextPtr context, const std::string& binary,
                                             const Candidate& candidate,
                                             const OpSignature& signature) {
  const CurrentContextKeeper keeper(context->api());
  CF_ASSIGN_OR_RETURN(CudaModule module, CudaModule::Load(context, binary));
  auto executable = std::make_unique<CudaExecutable>(std::move(context), std::move(module));
  CF_RETURN_IF_ERROR(executable->Prepare(candidate.plan, signature));
  return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace cudaforge
