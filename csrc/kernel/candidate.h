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
//   calls it from several threads with disjoint ranges [begin, end) that cover [0, range): any
//   ranges, down to one item, in any order.
// `aten`: JSON, a list of ATen calls; `library`: JSON, a cuBLASLt product with its algorithm. Both
//   by built-in authors alone, without launches. Nothing runs them yet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "kernel/int_expr.h"
#include "signature/op_signature.h"

namespace cudaforge {

enum class Language { kCuda, kCpu, kPtx, kAten, kLibrary };
std::string_view LanguageName(Language language);
// kInvalidArgument: no language of candidates.
Result<Language> ParseLanguage(std::string_view name);
// Whether it is device code, which a launch plan launches.
bool HasDeviceCode(Language language);
// Where candidates in it run; their launch plans are of that kind. REQUIRES: HasDeviceCode.
DeviceType DeviceOf(Language language);

struct KernelSource {
  static constexpr size_t kMaxBytes = 1u << 20;

  Language language = Language::kCpu;
  std::string code;
};

// An argument of a launch; in JSON {NAME: its index, expression, number or symbol}.
struct LaunchArg {
  enum class Kind {
    kInput,      // "in"
    kOutput,     // "out"
    kInOut,      // "inout": an input whose memory is an output too
    kScratch,    // "scratch"
    kTensorMap,  // "tensor_map": one of LaunchPlan::tensor_maps
    kPrepared,   // "prepared": a prepared operand
    kSymbol,     // "symbol": a named size
    kInt,        // "int"
    kFloat,      // "float"
  };
  Kind kind = Kind::kInput;
  int index = 0;            // of all but the last three
  IntExpr expr = 0;         // kInt
  double number = 0;        // kFloat
  std::string symbol = "";  // kSymbol
};

// How blocks of a kernel stand to each other and to the launch before; in JSON, those that are not
// as here.
struct LaunchAttributes {
  IntExpr cluster[3] = {1, 1, 1};
  // May begin before the launch before it in the plan has ended: the kernel waits for it itself.
  bool programmatic_dependent_launch = false;
  bool cooperative = false;  // all blocks run at once, and may wait for each other
};

struct Launch {
  std::string kernel;
  std::vector<LaunchArg> args;
  // cuda, ptx
  IntExpr grid[3] = {1, 1, 1};
  IntExpr block[3] = {1, 1, 1};
  LaunchAttributes attributes;
  IntExpr dynamic_shared_bytes = 0;
  // cpu: work items, and the fewest that are worth a thread of their own (at::parallel_for's
  // grain).
  IntExpr range = 1;
  IntExpr grain = 1;
};

// 256-byte aligned. Contents are undefined at the start unless it is `zeroed`.
struct ScratchBuffer {
  ScratchBuffer(IntExpr size, bool is_zeroed = false) : bytes(std::move(size)), zeroed(is_zeroed) {}
  ScratchBuffer(int64_t size) : bytes(size) {}

  IntExpr bytes;
  bool zeroed = false;  // before the launches of each call
};

// A TMA descriptor of a buffer, the innermost dimension first.
struct TensorMap {
  LaunchArg of;                  // kInput, kOutput, kInOut, kScratch or kPrepared
  std::string dtype;             // as in signatures
  std::vector<IntExpr> sizes;    // elements
  std::vector<IntExpr> strides;  // bytes, of all dimensions but the innermost
  std::vector<IntExpr> box;      // elements of one copy
  int64_t swizzle = 0;           // bytes: 0, 32, 64 or 128
};

struct LaunchPlan {
  std::vector<ScratchBuffer> scratch_bytes;
  std::vector<TensorMap> tensor_maps;
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
inline constexpr const char* kPlanFields[] = {"launches", "scratch_bytes", "tensor_maps",
                                              "constraints"};
// Those that `object` has.
Json PlanFieldsOf(const Json& object);

struct Candidate {
  KernelSource source;
  LaunchPlan plan;
  std::vector<Constraint> constraints;
  std::string author;            // who wrote it: "generator:rows", "agent:openai:gpt-5"
  Json params = Json::object();  // what the author chose: tile sizes and the like; for people

  Json ToJson() const;
  // Limits: 1 MiB of source, 64 launches, 256 arguments a launch, 32 scratch buffers, 32 tensor
  // maps. What an agent wrote is device code, and none of its launches begins before the one before
  // it has ended.
  static Result<Candidate> FromJson(const Json& json);
  // Against a signature: indices in range, expressions evaluate, grid/block/cluster positive and
  // within the limits every CUDA device has (block <= 1024 threads, grid y and z <= 65535), scratch
  // <= 64 GiB. kUnsupported: what no target runs yet (languages without device code; tensor maps,
  // prepared operands, symbols and inputs that are outputs as arguments).
  Status Validate(const OpSignature& signature) const;
};

// The author of what an agent of `provider` writes.
std::string AgentAuthor(std::string_view provider);
// Whether an agent wrote what has this author.
bool IsByAgent(std::string_view author);

}  // namespace cudaforge
