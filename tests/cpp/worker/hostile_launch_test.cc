// Hostile kernels in a real worker on mapped memory. None is accepted, and the worker survives
// each.
#include <csignal>
#include <fstream>

#include "base/integers.h"
#include "target/cpu/cpu_memory.h"
#include "tests/cpp/worker/launch_fixture.h"

namespace cudaforge {
namespace {

constexpr char kSyscall[] =
    "static inline long Call(long n, long a = 0, long b = 0, long c = 0) {\n"
    "  long r;\n"
    "  asm volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c)\n"
    "               : \"rcx\", \"r11\", \"memory\");\n"
    "  return r;\n"
    "}\n";

class HostileLaunch : public WorkerLaunch {
 protected:
  void Expect(VerdictKind kind, const std::string& body, const std::string& before = "",
              bool end = false) {
    const Verdict verdict = RunBody(body, before, end);
    EXPECT_EQ(VerdictName(verdict.kind), VerdictName(kind)) << body << "\n" << verdict.message;
  }
};

TEST_F(HostileLaunch, ReadsAndWritesOutsideABuffer) {
  const auto expect = [&](const std::string& body, bool end, const char* buffer, const char* access,
                          const char* where, int64_t bytes) {
    const Verdict verdict = RunBody(body, "", end);
    EXPECT_EQ(verdict.kind, VerdictKind::kMemoryFault) << body << verdict.message;
    EXPECT_EQ(verdict.evidence["buffer"], buffer) << verdict.message;
    EXPECT_EQ(verdict.evidence["access"], access) << verdict.message;
    EXPECT_EQ(verdict.evidence[where], bytes) << verdict.message;
  };
  expect("y[0] = x[-1];", false, "input 0", "read", "before_bytes", 4);
  expect("y[0] = x[1000];", true, "input 0", "read", "after_bytes", 1);
  expect("y[0] = x[1000 + (8 << 20)];", true, "input 0", "read", "after_bytes", (32 << 20) + 1);
  expect("y[-2] = 1;", false, "output 0", "write", "before_bytes", 8);
  expect("y[1001] = 1;", true, "output 0", "write", "after_bytes", 5);
}

TEST_F(HostileLaunch, WritesIntoAnInput) {
  const Verdict verdict = RunBody("x[5] = 1;");
  EXPECT_EQ(verdict.kind, VerdictKind::kModifiedInput) << verdict.message;
  EXPECT_EQ(verdict.evidence["buffer"], "input 0");
  EXPECT_EQ(verdict.evidence["byte"], 20);
  EXPECT_EQ(X()[5], 2);
}

TEST_F(HostileLaunch, Crashes) {
  Expect(VerdictKind::kMemoryFault, "*(volatile int*)16 = 1;");
  Expect(VerdictKind::kMemoryFault, "*(volatile int*)0x8000000000000000 = 1;");
  Expect(VerdictKind::kCrashed, "__builtin_trap();");
  Expect(VerdictKind::kCrashed, "y[0] = (int)begin / (int)(begin & 0);");
  Expect(VerdictKind::kMemoryFault, "y[0] = Deep(1 << 30);",
         "__attribute__((noinline)) int Deep(int n) {\n"
         "  volatile char room[4096]; room[n % 4096] = 1;\n"
         "  return n == 0 ? 0 : Deep(n - 1) + room[0];\n}");
}

TEST_F(HostileLaunch, NeverEnds) {
  WorkerOptions options = Options();
  client_.Limit(options.compile_timeout_ms, 300, nullptr);
  Expect(VerdictKind::kTimeout, "while (*(volatile float*)x != 99) {}");
  client_.Limit(options.compile_timeout_ms, options.run_timeout_ms, nullptr);
  Expect(VerdictKind::kAccepted, "");
}

TEST_F(HostileLaunch, EndsItsProcess) {
  Expect(VerdictKind::kCrashed, "Call(231, 0);", kSyscall);  // exit_group
  Expect(VerdictKind::kCrashed, "Call(231, 3);", kSyscall);
  Expect(VerdictKind::kCrashed, "Call(231, 86);", kSyscall);  // as after a fault
}

// Writes to the answer's pipe, whichever descriptor that is.
TEST_F(HostileLaunch, ForgesTheAnswer) {
  const std::string binary = UncheckedBinary("Call(1, n[0], (long)\"CFAN\", 4);", kSyscall);
  int crashed = 0;
  for (int fd = 3; fd < 16; ++fd) {
    candidate_ = CpuCandidate("", 1, std::to_string(kItems), fd);
    ASSERT_TRUE(Load(binary).accepted());
    const Verdict verdict = Launch(At(false));
    EXPECT_FALSE(verdict.accepted());
    crashed += verdict.kind == VerdictKind::kCrashed ? 1 : 0;
  }
  EXPECT_EQ(crashed, 1);  // the others were killed for the write
}

TEST_F(HostileLaunch, CallsTheSystem) {
  for (const char* call : {
           "Call(39)",                                   // getpid
           "Call(2, (long)\"/etc/passwd\", 0, 0)",       // open
           "Call(257, -100, (long)\"/etc/passwd\", 0)",  // openat
           "Call(228, 1, (long)y)",                      // clock_gettime
           "Call(201)",                                  // time
           "Call(318, (long)y, 8, 0)",                   // getrandom
           "Call(41, 1, 1, 0)",                          // socket
           "Call(57)",                                   // fork
           "Call(56, 0x11)",                             // clone
           "Call(62, Call(110), 9)",                     // kill the parent
#ifndef __SANITIZE_ADDRESS__
           "Call(9, 0, 4096, 7)",  // mmap, which AddressSanitizer is allowed
#endif
           "Call(10, (long)x & -4096, 4096, 3)",  // mprotect
           "Call(13, 11, 0, 0)",                  // rt_sigaction
           "Call(35, (long)x, 0)",                // nanosleep
           "Call(1, 2, (long)y, 8)",              // write to another descriptor
           "Call(0x40000000 + 39)",               // the x32 getpid
       }) {
    const Verdict verdict = RunBody(std::string("y[0] = ") + call + ";", kSyscall);
    EXPECT_EQ(verdict.kind, VerdictKind::kRefused) << call << ": " << verdict.message;
    EXPECT_EQ(verdict.evidence["signal"], SIGSYS) << call;
  }
  // From another thread, and by the 32-bit entry.
  Expect(VerdictKind::kRefused,
         "long r; asm volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(20)); y[0] = r;");
  ASSERT_TRUE(Load(UncheckedBinary("y[begin] = Call(39);", kSyscall)).accepted());
  EXPECT_EQ(Launch(At(false, RangeSplit::kWhole, 1)).kind, VerdictKind::kRefused);
  EXPECT_EQ(Launch(At(false, RangeSplit::kRandom, 1)).kind, VerdictKind::kRefused);
}

TEST_F(HostileLaunch, ReadsTheClock) {
  const std::string rdtsc =
      "unsigned a, d; asm volatile(\"rdtsc\" : \"=a\"(a), \"=d\"(d)); y[0] = a;";
  Expect(VerdictKind::kRefused, rdtsc);
  Expect(VerdictKind::kRefused,
         "unsigned a, c, d; asm volatile(\"rdtscp\" : \"=a\"(a), \"=c\"(c), \"=d\"(d)); y[0] = a;");
  ASSERT_TRUE(Load(UncheckedBinary(rdtsc)).accepted());
  EXPECT_EQ(Launch(At(false, RangeSplit::kWhole, 1)).kind, VerdictKind::kRefused);
  EXPECT_EQ(Launch(At(false, RangeSplit::kRandom, 1)).kind, VerdictKind::kRefused);
}

// Next to the vDSO, whose address is at the end of the first stack.
TEST_F(HostileLaunch, ReadsTheTimePages) {
  const std::string find =
      "long* p = (long*)(((long)__builtin_frame_address(0) + 15) & -16);\n"
      "while (!(p[0] == 33 && (p[1] & 4095) == 0 && p[1] >> 41 == 0x3f)) ++p;\n";
  Expect(VerdictKind::kAccepted, find + "y[0] = 1;");
  Expect(VerdictKind::kMemoryFault, find + "y[0] = *(volatile char*)p[1];");
}

TEST_F(HostileLaunch, ChangesRounding) {
  const std::string flush =
      "unsigned m; asm volatile(\"stmxcsr %0\" : \"=m\"(m)); m |= 0x8040;\n"
      "asm volatile(\"ldmxcsr %0\" : : \"m\"(m));";
  Expect(VerdictKind::kRefused, flush);
  EXPECT_EQ(RunBody(flush, "", false, RangeSplit::kRandom).kind, VerdictKind::kRefused);
  Expect(VerdictKind::kRefused,
         "unsigned short m = 0x0c7f; asm volatile(\"fldcw %0\" : : \"m\"(m));");
  // Flags of normal arithmetic: 1 / 3 is inexact.
  Expect(VerdictKind::kAccepted, "volatile float three = 3; y[0] = 1 / three;");
}

// Items run one after the other, so writes by two of them are always detected.
TEST_F(HostileLaunch, PartsRace) {
  const auto expect = [&](VerdictKind kind, const std::string& body, const char* text = "") {
    SCOPED_TRACE(body);
    candidate_.source.code = text;
    const Verdict verdict = RunBody(body, "", false, RangeSplit::kApart);
    EXPECT_EQ(verdict.kind, kind) << verdict.message;
    return verdict.message;
  };
  const std::string own = "for (int64_t i = begin; i < end; ++i) y[i] = x[i];\n";
  expect(VerdictKind::kAccepted, own);
  expect(VerdictKind::kAccepted, own + "y[7] = 3;");  // always the same
  const std::string said = expect(VerdictKind::kRefused, own + "y[7] += 1;");
  EXPECT_NE(said.find(" of output 0"), std::string::npos) << said;
  expect(VerdictKind::kRefused, "for (int64_t i = begin; i < end; ++i) y[i / 2] = x[i];");
#if defined(__x86_64__)
  // Atomic operations may overlap; ordinary ones may not.
  int* const sum = reinterpret_cast<int*>(Y());
  *sum = 0;
  const std::string atomic = "__atomic_fetch_add((int*)y, 3, __ATOMIC_RELAXED);\n";
  expect(VerdictKind::kAccepted, atomic, "__atomic_fetch_add");
  EXPECT_EQ(*sum, 3 * kItems);
  expect(VerdictKind::kAccepted,
         "float old = y[0], now;\n"
         "do { now = old + begin; } while (!__atomic_compare_exchange(y, &old, &now, false,\n"
         "                                 __ATOMIC_RELAXED, __ATOMIC_RELAXED));",
         "__atomic_compare_exchange");
  expect(VerdictKind::kRefused, atomic + "y[1] += 1;", "__atomic_fetch_add");
#endif
}

TEST_F(HostileLaunch, WritesIntoItsArguments) {
  Expect(VerdictKind::kMemoryFault, "const_cast<void**>(b)[0] = nullptr;");
  Expect(VerdictKind::kMemoryFault, "const_cast<int64_t*>(n)[0] = 2;");
}

// The thread's control block and stack outlive a call, but not the process.
TEST_F(HostileLaunch, KeepsNoState) {
  ASSERT_TRUE(Load(UncheckedBinary("long c; asm volatile(\"mov %%fs:0x50, %0\" : \"=r\"(c));\n"
                                   "++c; asm volatile(\"mov %0, %%fs:0x50\" : : \"r\"(c));\n"
                                   "y[begin] = c;"))
                  .accepted());
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(Launch(At(false)).accepted());
    EXPECT_EQ(Y()[0], 1);
  }
  ASSERT_TRUE(Launch(At(false, RangeSplit::kItems)).accepted());  // it does within a run
  float most = 0;
  for (int64_t i = 0; i < kItems; ++i) most = std::max(most, Y()[i]);
  EXPECT_EQ(most, kItems);
}

// Memory that a launch does not name is unmapped. Each mapping is right below the previous one.
TEST_F(HostileLaunch, ReadsAnotherMapping) {
  const SharedMemory secret = *ShareHostMemory(kBytes);
  ASSERT_TRUE(client_.Map(secret, false, 0).ok());
  const int64_t shifts = kMapShifts * PageBytes();
  const int64_t step = RoundUp(x_.bytes() + 2 * kMapGuardBytes + 2 * shifts, shifts);
  const std::string read = "y[0] = *(volatile char*)((long)x - " + std::to_string(step);
  Expect(VerdictKind::kAccepted, read + ");");  // the output
  const Verdict verdict = RunBody(read + " * 2);");
  EXPECT_EQ(verdict.kind, VerdictKind::kMemoryFault) << verdict.message;
}

}  // namespace
}  // namespace cudaforge
