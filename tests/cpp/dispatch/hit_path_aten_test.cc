// A hit allocates only its outputs (for compiled graphs also their list), and takes no lock. This
// file counts every operator new of its binary, and the locks of its process.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "dispatch/eager.h"
#include "tests/cpp/dispatch/fake_region.h"

namespace {

std::atomic<int64_t> allocations{0}, locks{0};
thread_local bool counting = false;

// The C library's function of this name, which this file overrides.
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void* Allocate(std::size_t bytes) {
  if (counting) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}

}  // namespace

extern "C" {
int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = Real<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (counting) locks.fetch_add(1, std::memory_order_relaxed);
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = Real<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  if (counting) locks.fetch_add(1, std::memory_order_relaxed);
  return real(lock);
}
}

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }

namespace cudaforge {
namespace {

using testing::EagerNeg;
using testing::LaunchLog;
using testing::NegRegion;
using testing::NegWinner;
using testing::Region;

template <typename Work>
int64_t CountAllocations(const Work& work) {
  allocations = locks = 0;
  counting = true;
  work();
  counting = false;
  return allocations.load();
}

// The boxed call of a compiled graph. The stack is made outside of the count.
int64_t CountHit(const Region& region, const at::Tensor& x) {
  static const c10::OperatorHandle op = RegionOperator();
  torch::jit::Stack stack;
  stack.reserve(8);
  stack.emplace_back(c10::List<at::Tensor>(std::vector<at::Tensor>{x}));
  stack.emplace_back(region.id);
  stack.emplace_back(region.text);
  return CountAllocations([&] { op.callBoxed(stack); });
}

// The minimum of any implementation: one output in a list.
int64_t CountOutput(at::IntArrayRef sizes) {
  return CountAllocations([&] {
    c10::List<at::Tensor> outputs;
    outputs.reserve(1);
    outputs.push_back(at::empty(sizes));
  });
}

TEST(LockCount, CountsLocks) {
  std::mutex mutex;
  std::shared_mutex shared;
  (void)CountAllocations([&] {
    const std::lock_guard lock(mutex);
    const std::shared_lock read(shared);
  });
  EXPECT_EQ(locks.load(), 2);
}

class HitPathTest : public ::testing::TestWithParam<bool> {};

TEST_P(HitPathTest, AllocatesOutputsAndScratchOnly) {
  const bool scratch = GetParam();
  const Region region = NegRegion({7, scratch ? 41 : 40});
  Resolver& resolver = Resolver::Get();
  resolver.SetLoader(nullptr);
  RegionEntry* entry = resolver.Resolve(region.id, region.text, -1).value();
  auto log = std::make_shared<LaunchLog>();
  resolver.Install(entry,
                   NegWinner(entry->signature.inputs[0].numel(), 1, log,
                             scratch ? std::vector<int64_t>{64, 64} : std::vector<int64_t>{}));
  const at::Tensor x = at::randn(entry->signature.inputs[0].sizes);
  (void)CountHit(region, x);             // one-time set-up
  EXPECT_GT(CountOutput(x.sizes()), 0);  // libtorch's allocations are counted
  EXPECT_LE(CountHit(region, x), CountOutput(x.sizes()) + (scratch ? 1 : 0));
  (void)CountHit(region, x);
  EXPECT_EQ(locks.load(), 0);
  EXPECT_EQ(entry->hits.load(), 3);
}

// Below autograd, whose kernels make PyTorch allocate a stack.
TEST(EagerHitPath, AllocatesOnlyItsOutput) {
  const Region region = EagerNeg({7, 42});
  RegionEntry* entry = Resolver::Get().Resolve(region.id, region.text, -1).value();
  auto log = std::make_shared<LaunchLog>();
  Resolver::Get().Install(entry, NegWinner(7 * 42, 1, log));
  EagerInterceptor& interceptor = EagerInterceptor::Get();
  interceptor.SetOnMiss(nullptr);
  ASSERT_TRUE(interceptor.SetOps({"aten::neg"}).ok());
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::neg", "");
  const auto call = [](const at::Tensor& x) {
    torch::jit::Stack stack = {x};
    return CountAllocations(
        [&] { op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack); });
  };
  const at::Tensor x = at::randn({7, 42}), other = at::randn({7, 43});
  for (const at::Tensor& one : {x, other}) (void)call(one);  // makes the calls known
  const int64_t output = CountAllocations([&] { at::empty({7, 42}); });
  EXPECT_GT(output, 0);
  const int launches = log->launches;
  EXPECT_EQ(call(x), output);
  EXPECT_EQ(locks.load(), 0);
  EXPECT_EQ(log->launches.load(), launches + 1) << "a hit";
  const int64_t not_served = call(other);
  EXPECT_EQ(locks.load(), 0);
  ASSERT_TRUE(interceptor.SetOps({}).ok());
  EXPECT_EQ(not_served, call(other)) << "as many as PyTorch's own";
}

INSTANTIATE_TEST_SUITE_P(Scratch, HitPathTest, ::testing::Bool());

}  // namespace
}  // namespace cudaforge
