#include "target/cuda/ptx_linker.h"

#include "target/cuda/compiler_output.h"
#include "target/cuda/ptx_audit.h"
#include "target/cuda/ptxas_log.h"
#include "target/cuda/sm_arch.h"

namespace cudaforge {
namespace {

class Linking {
 public:
  explicit Linking(const NvJitLinkApi& api) : api_(api) {}
  Linking(const Linking&) = delete;
  Linking& operator=(const Linking&) = delete;
  ~Linking() {
    if (handle_ != nullptr) api_.Destroy(&handle_);
  }
  NvJitLinkHandle* out() { return &handle_; }
  NvJitLinkHandle get() const { return handle_; }

  std::string Errors() const {
    return handle_ == nullptr ? "" : CompilerLog(handle_, api_.GetErrorLogSize, api_.GetErrorLog);
  }
  std::string Notes() const { return CompilerLog(handle_, api_.GetInfoLogSize, api_.GetInfoLog); }

 private:
  const NvJitLinkApi& api_;
  NvJitLinkHandle handle_ = nullptr;
};

}  // namespace

Status CheckPtxSource(const std::string& ptx) {
  if (ptx.size() > KernelSource::kMaxBytes) return Status::InvalidArgument("over 1 MiB of PTX");
  size_t line = 1;
  bool blank = true;  // only blanks in this line so far
  const auto refuse = [&](const char* what) {
    return Status::InvalidArgument("line " + std::to_string(line) + ": " + what);
  };
  for (const char c : ptx) {
    if (c == '\n') {
      ++line;
      blank = true;
      continue;
    }
    if (c == ' ' || (c >= '\t' && c <= '\r')) continue;
    if (c < ' ' || c > '~') return refuse("a character that is not ASCII text");
    if (c == '#' && blank) return refuse("PTX with directives of a preprocessor");
    blank = false;
  }
  return Status::Ok();
}

Result<PtxLinker> PtxLinker::Create(const std::vector<std::string>& search_paths) {
  CF_ASSIGN_OR_RETURN(NvJitLinkApi api, NvJitLinkApi::Open(search_paths));
  unsigned major = 12;
  unsigned minor = 0;
  if (api.Version != nullptr && api.Version(&major, &minor) != 0) {
    return Status::Unavailable(api.path + " does not report its version");
  }
  return PtxLinker(std::move(api), {static_cast<int>(major), static_cast<int>(minor)});
}

CompileResult PtxLinker::Link(const std::string& ptx, const std::string& arch) const {
  // nvJitLink reports other bad suffixes as errors of the text.
  if (const Result<int> number = ParseSm(arch); !number.ok())
    return CompileResult::Fault(number.status());
  if (const Status status = CheckPtxSource(ptx); !status.ok())
    return CompileResult::Failure("refused: " + status.message());
  if (const Status status = AuditPtx(ptx); !status.ok())
    return CompileResult::Failure("refused: " + status.message());
  // PTX itself says what may be fused: mul and add may be, mul.rn and add.rn may not.
  const std::string arch_option = "-arch=" + arch;
  std::vector<const char*> options = {arch_option.c_str(), "-Xptxas=-v", "-Xptxas=-warn-spills"};
  // As for NVRTC: a cached cubin may come without the log.
  if (version_.first >= 13) options.push_back("-no-cache");
  Linking link(api_);
  if (const NvJitLinkResult error =
          api_.Create(link.out(), static_cast<uint32_t>(options.size()), options.data());
      error != 0) {
    return CompileResult::Fault(Status::Unsupported(
        "nvJitLink " + std::to_string(version_.first) + "." + std::to_string(version_.second) +
        " does not link for " + arch + " (error " + std::to_string(error) +
        "); update nvidia-nvjitlink or the CUDA toolkit\n" + link.Errors()));
  }
  NvJitLinkResult error =
      api_.AddData(link.get(), kNvJitLinkInputPtx, ptx.c_str(), ptx.size(), "kernel.ptx");
  if (error == 0) error = api_.Complete(link.get());
  const std::string notes = link.Notes();
  if (error != 0) {
    std::string log = link.Errors();
    if (log.empty()) log = "nvJitLink fails with error " + std::to_string(error);
    return CompileResult::Failure(log + WithoutPtxasNotes(notes));
  }
  return CompiledCubin("nvJitLink", arch, notes, link.get(), api_.GetLinkedCubinSize,
                       api_.GetLinkedCubin);
}

}  // namespace cudaforge
