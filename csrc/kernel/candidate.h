// A candidate kernel: device code, how to launch it, and when it may be used. Candidates are
// untrusted: parsed with limits here, compiled and first run only in the worker process.
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

enum class Language {
  // CUDA C++ for NVRTC. Each launch names an extern "C" __global__ function whose parameters are
  // the launch's arguments in order (pointers, int64_t, double, const __grid_constant__ tensor
  // maps).
  kCuda,
  // C++20. Each launch names a function
  //   extern "C" void NAME(void* const* buffers, const int64_t* ints, const double* floats,
  //                        int64_t begin, int64_t end);
  // The first three hold the launch's arguments of each kind, in their order. Several threads call
  // it with disjoint ranges [begin, end) that cover [0, range), in any order.
  kCpu,
  // PTX for nvJitLink. Each launch names a .visible .entry with parameters as of kCuda, eight bytes
  // each, or 128 for a tensor map.
  kPtx,
  // JSON, by built-in authors only, without launches: a list of ATen calls, which no target runs
  // yet (kAten), or a matrix product by cuBLASLt on CUDA (kLibrary; see kernel/library_product.h).
  kAten,
  kLibrary
};
std::string_view LanguageName(Language language);
// kInvalidArgument: unknown language.
Result<Language> ParseLanguage(std::string_view name);
// Returns true if it is device code with a launch plan.
bool HasDeviceCode(Language language);
// Returns the device type that runs candidates in this language. REQUIRES: not kAten.
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
    kPrepared,   // "prepared": one of LaunchPlan::prepared_bytes
    kSymbol,     // "symbol": a named size
    kInt,        // "int"
    kFloat,      // "float"
  };
  Kind kind = Kind::kInput;
  int index = 0;            // of all kinds but the last three
  IntExpr expr = 0;         // kInt
  double number = 0;        // kFloat
  std::string symbol = "";  // kSymbol
};

// Launch attributes of a kernel. The JSON form lists only those that differ from these defaults.
struct LaunchAttributes {
  IntExpr cluster[3] = {1, 1, 1};
  // The kernel may start before the previous launch of the plan has ended, and synchronises itself.
  bool programmatic_dependent_launch = false;
  bool cooperative = false;  // all blocks run at once, so they may wait for each other
};

struct Launch {
  std::string kernel;
  std::vector<LaunchArg> args;
  // For cuda and ptx.
  IntExpr grid[3] = {1, 1, 1};
  IntExpr block[3] = {1, 1, 1};
  LaunchAttributes attributes;
  IntExpr dynamic_shared_bytes = 0;
  // For cpu: the number of work items, and the minimum per thread (at::parallel_for's grain).
  IntExpr range = 1;
  IntExpr grain = 1;
};

// 256-byte aligned. Undefined at the start unless `zeroed`.
struct ScratchBuffer {
  ScratchBuffer(IntExpr size, bool is_zeroed = false) : bytes(std::move(size)), zeroed(is_zeroed) {}
  ScratchBuffer(int64_t size) : bytes(size) {}

  IntExpr bytes;
  bool zeroed = false;  // before the launches of each call
};

// A TMA descriptor of a buffer, the innermost dimension first. Elements outside of `sizes` read as
// zeros and are not written. kernel/tensor_map.h checks it.
struct TensorMap {
  LaunchArg of;                  // kInput, kOutput, kInOut, kScratch or kPrepared
  std::string dtype;             // as in signatures
  std::vector<IntExpr> sizes;    // elements
  std::vector<IntExpr> strides;  // bytes, of all dimensions except the innermost
  std::vector<IntExpr> box;      // elements of one copy
  int64_t swizzle = 0;           // bytes: 0, 32, 64 or 128
};

struct LaunchPlan {
  std::vector<ScratchBuffer> scratch_bytes;
  std::vector<TensorMap> tensor_maps;
  std::vector<Launch> launches;  // run in order; each sees the memory effects of those before it
  // Prepared operands: frozen inputs in another form. `prepare` fills them, out of frozen inputs
  // alone, and may use scratch buffers. The form is kept while the inputs do not change. `launches`
  // only read it. 256-byte aligned. Scratch buffers keep nothing from `prepare` to `launches`.
  std::vector<IntExpr> prepared_bytes;
  std::vector<Launch> prepare;
};

// A condition beyond the signature that the kernel needs. Checked before each launch.
struct Constraint {
  enum class Kind { kAligned };  // input `index`'s data pointer is a multiple of `value` bytes
  Kind kind = Kind::kAligned;
  int index = 0;
  int64_t value = 1;
};

// The fields of a candidate's JSON that describe launches. A Coder sends them with the source.
inline constexpr const char* kPlanFields[] = {"launches",    "scratch_bytes",  "tensor_maps",
                                              "constraints", "prepared_bytes", "prepare"};
// Returns those of them that `object` has.
Json PlanFieldsOf(const Json& object);

struct Candidate {
  KernelSource source;
  LaunchPlan plan;
  std::vector<Constraint> constraints;
  std::string author;            // for example "generator:rows", "agent:openai:gpt-5"
  Json params = Json::object();  // the author's choices, such as tile sizes; for display

  Json ToJson() const;
  // Parses with limits: 1 MiB of source, 64 launches, 256 arguments a launch, 32 scratch buffers,
  // 32 prepared buffers, 32 tensor maps. An agent's candidate must be device code without
  // programmatic dependent launches and prepared operands.
  static Result<Candidate> FromJson(const Json& json);
  // Checks against a signature: indices in range, expressions evaluate, grid, block and cluster
  // positive and within the limits of every CUDA device (block <= 1024 threads, grid y and z <=
  // 65535), scratch <= 64 GiB, tensor maps inside of their buffers, `prepare` uses no outputs and
  // no inputs that are not frozen. kUnsupported: what no target runs yet (see HasDeviceCode;
  // symbols, in-out arguments), or tensor maps on a CPU.
  Status Validate(const OpSignature& signature) const;
};

// Returns the author name for candidates by an agent of `provider`.
std::string AgentAuthor(std::string_view provider);
// Returns true if this is the author name of an agent.
bool IsByAgent(std::string_view author);

}  // namespace cudaforge
