// What a candidate is run on once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cudaforge {

// One set of inputs. bytes[i] is input i's storage: signature.inputs[i].StorageBytes() bytes, laid
// out by its strides.
struct InputSet {
  std::string name;  // "normal", "uniform", "row_scales", "special_values", "all_equal", ...
  std::vector<std::string> bytes;
  // Where the worker places input i: its data pointer is this many bytes after a multiple of 256.
  // Empty means 0; never below the alignment that the signature promises.
  std::vector<int64_t> offsets;
  // Not 0: unique in this process among sets of these bytes, which never change. Such a set may be
  // kept ready for many runs.
  uint64_t id = 0;
};

}  // namespace cudaforge
