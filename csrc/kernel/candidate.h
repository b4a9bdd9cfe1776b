// What a candidate kernel is: device code, how to launch it, and when it may be used. A candidate
// is untrusted data: parsed with limits here, compiled and first run only in the worker process.
//
// `cuda`: CUDA C++ for NVRTC; each launch names an extern "C" __global__ function whose parameters
//   are the launch's arguments in order (pointers, int64_t, double).
// `ptx`: PTX for nvJitLink; each launch names a .visible .entry with parameters as of `cuda`, eight
//   bytes each.
// `cpu`: C++20; each launch names a function
//     extern "C" void NAME(void* const* buffers, const int64_t* ints, const double* floats,
//                          int64_t begin, int64_t end);
//   buffers, ints and floats hold the launch's arguments of each kind in their order; the launcher
//   calls it from several threads with disjoint ranges [begin, end) that cover [0, range).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernel/int_expr.h"
#include "signature/op_signature.h"

namespace cudaforge {

enum class Language { kCuda, kCpu, kPtx };
std::string_view LanguageName(Language language);
// kInvalidArgument: no language of candidates.
Result<Language> ParseLanguage(std::string_view name);
// Where candidates in it run; their launch plans are of that kind.
DeviceType DeviceOf(Language language);

struct KernelSource {
  static constexpr size_t kMaxBytes = 1u << 20;

  Language language = Language::kCpu;
  std::string code;
};

struct LaunchArg {
  enum class Kind { kInput, kOutput, kScratch, kInt, kFloat };
  Kind kind = Kind::kInput;
  int index = 0;      // kInput, kOutput, kScratch
  IntExpr expr;       // kInt
  double number = 0;  // kFloat
};

struct Launch {
  std::string kernel;
  std::vector<LaunchArg> args;
  // cuda, ptx
  IntExpr grid[3] = {1, 1, 1};
  IntExpr block[3] = {1, 1, 1};
  IntExpr cluster[3] = {1, 1, 1};
  IntExpr dynamic_shared_bytes = 0;
  // cpu: work items, and the fewest that are worth a thread of their own (at::parallel_for's
  // grain).
  IntExpr range = 1;
  IntExpr grain = 1;
};

struct LaunchPlan {
  // One buffer each, 256-byte aligned, contents undefined at start.
  std::vector<IntExpr> scratch_bytes;
  std::vector<Launch> launches;  // run in order; each sees the memory effects of those before it
};

// What must hold, beyond the signature itself, for the kernel to be legal. Checked before each
// launch.
struct Constraint {
  enum class Kind { kAligned };  // input `index`'s data pointer is a multiple of `value` bytes
  Kind kind = Kind::kAligned;
  int index = 0;
  int64_t value = 1;
};

// The fields of a candidate's JSON that say how it is launched: what a Coder gives beside a source.
inline constexpr const char* kPlanFields[] = {"launches", "scratch_bytes", "constraints"};

struct Candidate {
  KernelSource source;
  LaunchPlan plan;
  std::vector<Constraint> constraints;
  std::string author;            // who wrote it: "generator:rows", "agent:openai:gpt-5"
  Json params = Json::object();  // what the author chose: tile sizes and the like; for people

  Json ToJson() const;
  // Limits: 1 MiB of source, 64 launches, 256 arguments a launch, 32 scratch buffers.
  static Result<Candidate> FromJson(const Json& json);
  // Against a signature: indices in range, expressions evaluate, grid/block/cluster positive and
  // within the limits every CUDA device has (block <= 1024 threads, grid y and z <= 65535), scratch
  // <= 64 GiB.
  Status Validate(const OpSignature& signature) const;
};

// The author of what an agent of `provider` writes.
std::string AgentAuthor(std::string_view provider);
// Whether an agent wrote what has this author.
bool IsByAgent(std::string_view author);

}  // namespace cudaforge
