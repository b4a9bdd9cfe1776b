// Compiles `cpu` candidates with the host's C++ compiler.
#pragma once

#include <string>

#include "base/status.h"
#include "target/target.h"

namespace cudaforge {

// The host compiler: `wanted` when not empty, else the first of g++, c++ and clang++ on PATH.
// kUnavailable when there is none, or when the one asked for cannot be run.
Result<std::string> FindHostCompiler(const std::string& wanted);

// Scans, then compiles to a shared object in a temporary folder. Never throws; a failure is a log,
// with a fault where it is this machine's. Thread-safe.
CompileResult CompileCpu(const std::string& code, const std::string& wanted_cxx, int timeout_ms);

// The checks that CompileCpu makes first: kInvalidArgument says what is refused and where.
Status CheckCpuSource(const std::string& code);

}  // namespace cudaforge
