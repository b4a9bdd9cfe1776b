// Runs a candidate's kernels for Hopper on the host, by hopper_shim.h.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "generators/tiles/device_texts.h"
#include "generators/tiles/wgmma.h"
#include "kernel/candidate.h"

namespace cudaforge {

inline void EraseText(std::string& code, const std::string& text) {
  const size_t at = code.find(text);
  if (at != std::string::npos) code.erase(at, text.size());
}

// The candidate's text for the shim, `instead` in place of MmaText(mma), and Run(inputs, outputs,
// scratch), which launches its kernels.
inline std::string HostText(const Candidate& candidate, const tiles::MmaShape& mma,
                            const std::string& instead) {
  std::string code = candidate.source.code;
  EraseText(code, "#include <cuda_fp16.h>\n");
  for (int i = 0; i < 2; ++i)  // in RunPipeline, and in a Product that does not use it
    EraseText(code, "extern __shared__ __align__(1024) unsigned char dynamic_memory[];");
  for (const char* name : {"device/barrier.cuh", "device/bulk_copy.cuh", "device/matrices.cuh",
                           "device/tensor_copy.cuh", "device/wgmma.cuh", "tiles/warps_sm90.cuh"})
    EraseText(code, tiles::DeviceText({name}));
  const std::string text = tiles::MmaText(mma);
  const size_t at = code.find(text);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos) code.replace(at, text.size(), instead);
  const auto number = [](const IntExpr& expr) { return expr.Evaluate({}).value(); };
  std::string run = "extern \"C\" int Run(void** in, void** out, void** scratch) {\n";
  for (size_t i = 0; i < candidate.plan.tensor_maps.size(); ++i) {
    const TensorMap& map = candidate.plan.tensor_maps[i];
    run +=
        Cat("const CfTensorMap map", i, " = {(const unsigned char*)in[", map.of.index, "], ",
            DTypeSize(ParseDType(map.dtype).value()), ", {", number(map.sizes[0]), ", ",
            number(map.sizes[1]), ", ", number(map.sizes[2]), "}, {", number(map.strides[0]), ", ",
            number(map.strides[1]), "}, {", number(map.box[0]), ", ", number(map.box[1]), "}};\n");
  }
  run += "int failed = 0;\n";
  for (const Launch& launch : candidate.plan.launches) {
    std::string args;
    for (const LaunchArg& arg : launch.args) {
      const char* from = arg.kind == LaunchArg::Kind::kInput    ? "in["
                         : arg.kind == LaunchArg::Kind::kOutput ? "out["
                                                                : "scratch[";
      args += args.empty() ? "" : ", ";
      args += arg.kind == LaunchArg::Kind::kTensorMap ? Cat("map", arg.index)
              : arg.kind == LaunchArg::Kind::kInt     ? Cat(number(arg.expr), "LL")
                                                      : Cat("ShimPointer{", from, arg.index, "]}");
    }
    run += Cat("for (unsigned y = 0; y < ", number(launch.grid[1]), "; ++y) {\n",
               "shim_block_index.y = y;\n", "failed += ShimRun(", number(launch.grid[0]), ", ",
               number(launch.block[0]), ", [&] { ", launch.kernel, "(", args, "); });\n}\n",
               "shim_block_index.y = 0;\n");
  }
  return Cat("#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/cuda_shim.h\"\n",
             "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/tiles/hopper_shim.h\"\n",
             code, run, "return failed;\n}\n");
}

// Compiles and runs the launches once. Libraries are not to share the statics of their functions,
// which differ in size.
inline void RunOnHost(const Candidate& candidate, const tiles::MmaShape& mma,
                      const std::string& instead, std::vector<void*> inputs,
                      std::vector<void*> outputs) {
  const Result<TempDir> folder = TempDir::Create("host_kernels");
  ASSERT_TRUE(folder.ok());
  const std::string source = folder->path() + "/k.cc", library = folder->path() + "/k.so";
  ASSERT_TRUE(WriteFileAtomic(source, HostText(candidate, mma, instead)).ok());
  const Result<ProcessResult> compiled = RunProcess(
      {"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off",
       "-fno-strict-aliasing", "-fno-gnu-unique", "-I" CUDAFORGE_SOURCE_DIR, "-o", library, source},
      {.timeout_ms = 240'000, .join_errors = true});
  ASSERT_TRUE(compiled.ok());
  ASSERT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  struct alignas(16) Piece {
    uint32_t words[4];
  };
  std::vector<std::vector<Piece>> scratch;
  std::vector<void*> pointers;
  for (const ScratchBuffer& buffer : candidate.plan.scratch_bytes) {
    const auto bytes = static_cast<size_t>(buffer.bytes.Evaluate({}).value());
    scratch.emplace_back(bytes / 16 + 1, Piece{{0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7fc00000}});
    pointers.push_back(scratch.back().data());
  }
  const auto run = reinterpret_cast<int (*)(void**, void**, void**)>(dlsym(handle, "Run"));
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run(inputs.data(), outputs.data(), pointers.data()), 0) << "threads wait for ever";
  dlclose(handle);
}

}  // namespace cudaforge
