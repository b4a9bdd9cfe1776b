#include "runtime/runtime.h"

#include <torch/version.h>

#include <algorithm>

#include "base/config.h"
#include "base/fork.h"
#include "dispatch/kernel_on_trial.h"
#include "target/cuda/cublaslt_api.h"
#include "target/cuda/search_paths.h"
#include "verify/evaluator.h"

namespace cudaforge {

namespace {

// Nanoseconds that one call of a winner saves over its fastest rival, by its record.
double SavedNs(const CacheRecord& record) {
  const Json timing = JsonOrNull(record.race());
  const auto number = [&timing](const char* field) {
    const Result<double> value = JsonDouble(timing, field);
    return value.ok() ? *value : 0.0;
  };
  const double aten = number("aten_us"), inductor = number("inductor_us");
  const bool compiled = inductor > 0 && record.Serves().compiled;
  const double rival = compiled ? std::min(aten, inductor) : aten;
  return std::max(0.0, rival - number("winner_us")) * 1e3;
}

class KernelInOperator : public ForgeHost::OnTrial {
 public:
  KernelInOperator(RegionEntry* entry, std::unique_ptr<Winner> kernel)
      : entry_(entry), trial_(entry, std::move(kernel)) {}
  void Serve(const CacheRecord& record) override {
    entry_->saved_ns = SavedNs(record);
    const Served served = record.Serves();
    trial_.Promote(served.compiled, served.eager);
  }

 private:
  RegionEntry* const entry_;
  KernelOnTrial trial_;
};

}  // namespace

const Json& Versions() {
  static const auto* versions = new Json{
      {"cudaforge", CUDAFORGE_VERSION}, {"torch", TORCH_VERSION}, {"verifier", kVerifierVersion}};
  return *versions;
}

bool JudgedByThisBuild(const CacheRecord& record) {
  return JudgedAlike(record.versions, Versions());
}

Runtime& Runtime::Get() {
  static Runtime* const runtime = [] {
    auto* const made = new Runtime;
    HoldAcrossForks<Runtime>(&made->mutex_);
    return made;
  }();
  return *runtime;
}

void Runtime::Configure(const std::vector<std::string>& cuda_folders, const std::string& programs,
                        const std::string& torch) {
  cuda_search_paths_ = CudaRoots(cuda_folders);
  const Config& config = GlobalConfig();
  verifier_options_.executable = programs + "/cudaforge-verifier";
  verifier_options_.worker = config.worker.empty() ? programs + "/cudaforge-worker" : config.worker;
  verifier_options_.library_path = torch;
  verifier_options_.cxx = config.cxx;
  verifier_options_.cuda_search_paths = cuda_search_paths_;
  Resolver::Get().SetLoader([this](const RegionEntry& entry) { return FromStore(entry); });
}

Result<Target*> Runtime::TargetFor(DeviceType device, int device_index) {
  const std::pair<DeviceType, int> name{device, device == DeviceType::kCpu ? 0 : device_index};
  {
    std::lock_guard lock(mutex_);
    if (const auto found = targets_.find(name); found != targets_.end()) return found->second.get();
  }
  // Made outside the lock, because a fork waits for that, and NVIDIA's driver may fork when it
  // starts. If two threads make it, one is dropped.
  std::unique_ptr<Target> made;
  if (device == DeviceType::kCpu) {
    CF_ASSIGN_OR_RETURN(made, MakeCpuTarget({.cxx = GlobalConfig().cxx, .threads = 0}));
  } else {
    CF_ASSIGN_OR_RETURN(made, MakeCudaTarget(device_index, {.search_paths = cuda_search_paths_,
                                                            .own_stream = false}));
  }
  std::lock_guard lock(mutex_);
  return targets_.try_emplace(name, std::move(made)).first->second.get();
}

std::shared_ptr<KernelStore> Runtime::store() {
  std::lock_guard lock(mutex_);
  if (store_ == nullptr) store_ = MakeMemoryKernelStore();
  return store_;
}

Status Runtime::UseCache(const std::string& folder) {
  const auto in_use = [&] { return store_ != nullptr && folder == folder_; };
  {
    std::lock_guard lock(mutex_);
    if (in_use()) return opened_;
  }
  // Opens and closes stores outside the lock, because a fork waits for that. If two threads open
  // the folder, one store is dropped.
  Result<std::unique_ptr<KernelStore>> opened = OpenRocksKernelStore(folder, /*writable=*/true);
  const Status status = opened.status();
  std::shared_ptr<KernelStore> store =
      opened.ok() ? std::move(opened).value() : MakeMemoryKernelStore();
  std::lock_guard lock(mutex_);
  if (in_use()) return opened_;
  folder_ = folder;
  opened_ = status;
  store_.swap(store);
  return opened_;
}

void Runtime::NoteDoubt(const CacheRecord& record) {
  std::lock_guard lock(mutex_);
  doubts_.emplace(record.key, record.arch);
}

Json Runtime::VersionsOn(const DeviceArch& arch) const {
  Json versions = Versions();
  if (!arch.name.empty()) versions["device"] = arch.name;
  if (!arch.is_cuda()) return versions;
  static const auto* const library = new std::string(lt::Version(cuda_search_paths_));
  if (!library->empty()) versions["cublaslt"] = *library;
  return versions;
}

bool Runtime::IsCurrent(const CacheRecord& record) {
  const bool cpu = record.arch.starts_with("cpu:");
  const Result<Target*> target = TargetFor(cpu ? DeviceType::kCpu : DeviceType::kCuda, 0);
  const Json versions = target.ok() ? VersionsOn((*target)->arch()) : Versions();
  return JudgedAlike(record.versions, versions);
}

bool Runtime::IsStale(const CacheRecord& record) {
  if (record.doubtful == 0 || record.RecentlyDoubtful()) return false;
  std::lock_guard lock(mutex_);
  return !doubts_.contains({record.key, record.arch});
}

void Runtime::AddToWantedList(const RegionEntry& region, const std::string& arch,
                              WantedWriter* writer) {
  std::shared_ptr<KernelStore> store = this->store();
  const std::shared_ptr<const CacheRecord> known = store->Get(region.key, arch);
  if (known != nullptr && IsCurrent(*known) && !IsStale(*known)) return;
  writer->Add(std::move(store), {region.key, arch, region.signature.ToJson()});
}

Result<std::unique_ptr<ForgeHost::OnTrial>> Runtime::Try(const OpSignature& region,
                                                         int device_index,
                                                         const ProvenKernel& kernel) {
  CF_ASSIGN_OR_RETURN(
      RegionEntry * entry,
      Resolver::Get().Resolve(RegionId(region.Key()), region.Canonical(), device_index));
  CF_ASSIGN_OR_RETURN(auto winner, Load(region, device_index, kernel.candidate, kernel.binary));
  return std::unique_ptr<ForgeHost::OnTrial>(
      std::make_unique<KernelInOperator>(entry, std::move(winner)));
}

Result<std::unique_ptr<Winner>> Runtime::Load(const OpSignature& signature, int device_index,
                                              Candidate candidate, const std::string& binary) {
  CF_ASSIGN_OR_RETURN(Target * target, TargetFor(signature.device, device_index));
  CF_RETURN_IF_ERROR(candidate.Validate(signature));
  auto winner = std::make_unique<Winner>();
  CF_ASSIGN_OR_RETURN(winner->executable, target->Load(binary, candidate, signature));
  winner->constraints = std::move(candidate.constraints);
  return winner;
}

Result<std::unique_ptr<Winner>> Runtime::FromStore(const RegionEntry& entry) {
  CF_ASSIGN_OR_RETURN(Target * target, TargetFor(entry.signature.device, entry.device_index));
  const std::shared_ptr<const CacheRecord> record = store()->Get(entry.key, target->arch().target);
  const Variant* const kernel = record ? record->For() : nullptr;
  if (kernel == nullptr || !JudgedAlike(record->versions, VersionsOn(target->arch()))) {
    return std::unique_ptr<Winner>();
  }
  const auto load = [&]() -> Result<std::unique_ptr<Winner>> {
    if (const Status sound = record->Fields().status(); !sound.ok()) {
      store()->CountCorrupt(1);
      return sound;
    }
    CF_ASSIGN_OR_RETURN(const Json json, ParseJson(kernel->candidate));
    CF_ASSIGN_OR_RETURN(Candidate candidate, Candidate::FromJson(json));
    return Load(entry.signature, entry.device_index, std::move(candidate), kernel->binary);
  };
  Result<std::unique_ptr<Winner>> winner = load();
  if (winner.status().code() == StatusCode::kNotFound) return std::unique_ptr<Winner>();
  if (!winner.ok()) {
    return Status(winner.status().code(), winner.status().message() + "; `cudaforge cache rm " +
                                              entry.key + "` deletes it");
  }
  (*winner)->saved_ns = SavedNs(*record);
  const Served served = record->Serves();
  (*winner)->compiled = served.compiled;
  (*winner)->eager = served.eager;
  return winner;
}

Workshop Runtime::WorkshopFor(std::shared_ptr<KernelStore> store, const DeviceArch& arch) {
  Workshop workshop;
  workshop.store = std::move(store);
  workshop.versions = VersionsOn(arch);
  Verifiers& verifiers = verifiers_.Get(verifier_options_);
  workshop.open = [&verifiers](auto&&... asked) { return verifiers.Open(asked...); };
  workshop.compile_ahead = [&verifiers](const Candidate& candidate, const DeviceArch& of) {
    verifiers.CompileAhead(candidate, of.is_cuda() ? DeviceType::kCuda : DeviceType::kCpu,
                           of.target);
  };
  return workshop;
}

}  // namespace cudaforge
