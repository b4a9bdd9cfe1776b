#include "target/target.h"

#include <random>

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

int64_t RandomMapShift() {
  std::random_device random;
  return std::uniform_int_distribution<int64_t>(0, kMapShifts - 1)(random);
}

Result<DeviceBuffer> Target::AllocateFenced(int64_t) {
  return Status::Unsupported("this target has no fences");
}

}  // namespace cudaforge
