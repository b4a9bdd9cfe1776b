#include "target/target.h"

namespace cudaforge {
namespace {

class KeptLaunch : public BoundLaunch {
 public:
  KeptLaunch(const Executable& executable, std::span<void* const> inputs,
             std::span<void* const> outputs, std::span<void* const> scratch)
      : executable_(executable),
        inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()),
        scratch_(scratch.begin(), scratch.end()) {}

  Status Prepare(const LaunchContext& context) const override {
    return executable_.PrepareOperands(inputs_, scratch_, context);
  }
  Status Run(const LaunchContext& context) const override {
    return executable_.Launch(inputs_, outputs_, scratch_, context);
  }

 private:
  const Executable& executable_;
  std::vector<void*> inputs_, outputs_, scratch_;
};

}  // namespace

Result<std::unique_ptr<BoundLaunch>> Executable::Bind(std::span<void* const> inputs,
                                                      std::span<void* const> outputs,
                                                      std::span<void* const> scratch) const {
  return std::unique_ptr<BoundLaunch>(
      std::make_unique<KeptLaunch>(*this, inputs, outputs, scratch));
}

}  // namespace cudaforge
