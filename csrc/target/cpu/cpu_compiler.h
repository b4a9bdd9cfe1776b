// Compiles `cpu` candidates with the host's C++ compiler.
#pragma once

#include <string>

#include "base/status.h"
#include "target/target.h"

namespace cudaforge {

// Returns `wanted` unless empty, else the first of g++, c++ and clang++ on PATH. kUnavailable:
// there is none, or `wanted` cannot run.
Result<std::string> FindHostCompiler(const std::string& wanted);

// Scans, then compiles to a shared object in a temporary folder. Never throws. A failure has a log,
// and a fault if this machine is the reason. Thread-safe.
CompileResult CompileCpu(const std::string& code, const std::string& wanted_cxx, int timeout_ms);

// CompileCpu's source checks: kInvalidArgument says what is refused and where.
Status CheckCpuSource(const std::string& code);

}  // namespace cudaforge
