// Checks candidate source before compiling: includes and banned words. A lint that gives a clear
// refusal and keeps file contents out of compiler logs. The worker process's isolation is what
// contains a candidate.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

struct ScanRules {
  std::span<const std::string_view> includes;          // whole names: "cmath"
  std::span<const std::string_view> include_prefixes;  // "cuda/std/"
  std::span<const std::string_view> pragmas;           // first words: "GCC ivdep"
  std::span<const std::string_view> banned_words;      // identifiers
  std::span<const std::string_view> banned_prefixes;   // of identifiers
  bool allow_token_paste = false;                      // ## could make a banned word
};

// kInvalidArgument "line 3: ..." for the first violation. Always refused: quoted, absolute,
// computed and ".." includes; directives other than include, define, undef, if*, el*, endif, pragma
// and error; raw string literals; digraphs of #; backslashes outside literals; NUL bytes.
Status ScanSource(std::string_view code, const ScanRules& rules);

}  // namespace cudaforge
