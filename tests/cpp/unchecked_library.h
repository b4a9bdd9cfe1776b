// Kernel libraries that bypass the source scan.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/subprocess.h"

namespace cudaforge {

// Compiles as CompileCpu does, from a source that CheckCpuSource may refuse.
inline std::string UncheckedLibrary(const std::string& source) {
  const auto folder = TempDir::Create("cudaforge-test-");
  EXPECT_TRUE(folder.ok());
  const std::string text = folder->path() + "/k.cc", object = folder->path() + "/k.so";
  EXPECT_TRUE(WriteFileAtomic(text, source).ok());
  const auto run =
      RunProcess({"g++", "-std=c++20", "-O1", "-fno-exceptions", "-fno-rtti",
                  "-fno-stack-protector", "-fPIC", "-shared", "-nostartfiles", "-s",
                  "-Wl,--no-undefined", "-Wl,-z,relro", "-Wl,-z,now", "-o", object, text},
                 {.join_errors = true});
  EXPECT_TRUE(run.ok());
  EXPECT_EQ(run->exit_code, 0) << run->output;
  const auto binary = ReadFile(object);
  EXPECT_TRUE(binary.ok());
  return binary.ok() ? *binary : "";
}

}  // namespace cudaforge
