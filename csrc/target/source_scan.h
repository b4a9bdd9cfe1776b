// A static look at candidate source before any compiler sees it: what it may include and which
// words it may not use. A lint that gives the author a clear refusal and keeps file contents out of
// compiler logs; the isolation of the worker process is what actually contains a candidate.
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
  bool allow_token_paste = false;                      // ## could spell a banned word
};

// kInvalidArgument "line 3: ..." for the first thing that the rules refuse. Always refused: quoted,
// absolute, computed and ".." includes, directives other than include, define, undef, if*, el*,
// endif, pragma and error, raw string literals, digraphs of #, backslashes outside literals, and
// NUL bytes.
Status ScanSource(std::string_view code, const ScanRules& rules);

}  // namespace cudaforge
