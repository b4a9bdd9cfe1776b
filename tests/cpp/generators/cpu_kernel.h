// For tests of the CPU emitter: hand-made stages, and kernels compiled and called without a Target.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "generators/rows/emit.h"
#include "tests/cpp/generators/special_values.h"

namespace cudaforge::rows {

// A stage under construction. Coefficients are element strides: outer dimensions, then inner ones.
class StageBuilder {
 public:
  StageBuilder(std::vector<int64_t> outer, std::vector<int64_t> inner) {
    stage_.outer = std::move(outer);
    stage_.inner = std::move(inner);
  }

  int Const(double number, Type type = Type::kF32) {
    Value v;
    v.type = type;
    v.number = number;
    v.integer = type == Type::kF32 || type == Type::kF64 ? 0 : static_cast<int64_t>(number);
    return Add(v);
  }
  int Load(int input, std::vector<int64_t> outer, std::vector<int64_t> inner,
           DType storage = DType::kFloat32, int64_t offset = 0,
           BufferKind kind = BufferKind::kInput) {
    Value v;
    v.kind = Value::Kind::kLoad;
    v.storage = storage;
    v.type = ComputeType(storage);
    v.buffer = {kind, input};
    v.space = std::any_of(inner.begin(), inner.end(), [](int64_t c) { return c != 0; })
                  ? Space::kElement
                  : Space::kRow;
    v.access = Linear(std::move(outer), std::move(inner), offset);
    return Add(v);
  }
  // A load with bounds: one DimIndex per tensor dimension.
  int Window(int input, Access access, int out_of_bounds) {
    Value v;
    v.kind = Value::Kind::kLoad;
    v.buffer = {BufferKind::kInput, input};
    v.space = Space::kElement;
    v.access = std::move(access);
    v.out_of_bounds = out_of_bounds;
    return Add(v);
  }
  int InnerIndex(int dim) {
    Value v;
    v.kind = Value::Kind::kInnerIndex;
    v.type = Type::kI64;
    v.space = Space::kElement;
    v.dim = dim;
    return Add(v);
  }
  int Op(ScalarOp op, std::vector<int> operands, Type type = Type::kF32) {
    Value v;
    v.kind = Value::Kind::kPointwise;
    v.type = type;
    v.op = op;
    for (int o : operands) v.space = std::max(v.space, stage_.values[static_cast<size_t>(o)].space);
    v.operands = std::move(operands);
    return Add(v);
  }
  int Reduce(ReduceOp op, int operand) {
    Value v;
    v.kind = Value::Kind::kReduce;
    v.reduce = op;
    v.type = stage_.values[static_cast<size_t>(operand)].type;
    if (op == ReduceOp::kArgMax || op == ReduceOp::kArgMin) v.type = Type::kI64;
    if (op == ReduceOp::kAny || op == ReduceOp::kAll) v.type = Type::kBool;
    v.space = Space::kRow;
    v.operands = {operand};
    return Add(v);
  }
  int Scan(ScanOp op, int operand) {
    Value v;
    v.kind = Value::Kind::kScan;
    v.scan = op;
    v.type = stage_.values[static_cast<size_t>(operand)].type;
    v.space = Space::kElement;
    v.operands = {operand};
    return Add(v);
  }
  void Store(int output, int value, std::vector<int64_t> outer, std::vector<int64_t> inner,
             DType storage = DType::kFloat32) {
    struct Store s;
    s.buffer = {BufferKind::kOutput, output};
    s.storage = storage;
    s.access = Linear(std::move(outer), std::move(inner), 0);
    s.value = value;
    stage_.stores.push_back(std::move(s));
  }
  const Stage& stage() const { return stage_; }

 private:
  Access Linear(std::vector<int64_t> outer, std::vector<int64_t> inner, int64_t offset) const {
    outer.resize(stage_.outer.size());
    inner.resize(stage_.inner.size());
    return {{DimIndex{offset, std::move(outer), std::move(inner), 1, -1}}, {1}};
  }
  int Add(Value v) {
    stage_.values.push_back(std::move(v));
    return static_cast<int>(stage_.values.size()) - 1;
  }
  Stage stage_;
};

// A one-stage program's candidate, compiled with the host compiler into its own folder and loaded.
class CpuKernelUnderTest {
 public:
  CpuKernelUnderTest(const Stage& stage, const Schedule& schedule) {
    Program program;
    program.stages = {stage};
    OpSignature signature;
    Result<Candidate> candidate = EmitCpu(program, signature, {schedule});
    if (!candidate.ok()) {
      ADD_FAILURE() << candidate.status().ToString();
      return;
    }
    launch_ = candidate->plan.launches[0];
    range_ = launch_.range.Evaluate(signature).value();
    char folder[] = "/tmp/cpu_kernel_XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    folder_ = folder;
    std::ofstream(folder_ / "k.cc") << candidate->source.code;
    const char* cxx = getenv("CUDAFORGE_CXX");
    const std::string command =
        std::string(cxx != nullptr ? cxx : "c++") +
        " -std=c++20 -O3 -march=native -fopenmp-simd -fPIC -shared -Wall -Wno-unknown-pragmas -o " +
        (folder_ / "k.so").string() + " " + (folder_ / "k.cc").string();
    if (system(command.c_str()) != 0) {
      ADD_FAILURE() << "does not compile";
      return;
    }
    library_ = dlopen((folder_ / "k.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) return;
    function_ = reinterpret_cast<Function>(dlsym(library_, launch_.kernel.c_str()));
  }
  CpuKernelUnderTest(const CpuKernelUnderTest&) = delete;
  CpuKernelUnderTest& operator=(const CpuKernelUnderTest&) = delete;
  ~CpuKernelUnderTest() {
    if (library_ != nullptr) dlclose(library_);
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  // Runs the range in three parts, as several threads would.
  void Run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) const {
    ASSERT_NE(function_, nullptr);
    std::vector<void*> buffers;
    for (const LaunchArg& arg : launch_.args) {
      const size_t i = static_cast<size_t>(arg.index);
      buffers.push_back(arg.kind == LaunchArg::Kind::kInput ? const_cast<void*>(inputs[i])
                                                            : outputs[i]);
    }
    const int64_t cuts[] = {0, range_ / 3, range_ - range_ / 4, range_};
    for (int part = 0; part < 3; ++part) {
      if (cuts[part] < cuts[part + 1])
        function_(buffers.data(), nullptr, nullptr, cuts[part], cuts[part + 1]);
    }
  }

 private:
  using Function = void (*)(void* const*, const int64_t*, const double*, int64_t, int64_t);
  Launch launch_;
  int64_t range_ = 0;
  std::filesystem::path folder_;
  void* library_ = nullptr;
  Function function_ = nullptr;
};

}  // namespace cudaforge::rows
