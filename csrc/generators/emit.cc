#include "generators/emit.h"

namespace cudaforge::rows {

const char* MappingName(Mapping mapping) {
  switch (mapping) {
    case Mapping::kThread:
      return "thread";
    case Mapping::kWarp:
      return "warp";
    case Mapping::kBlock:
      return "block";
    case Mapping::kLoop:
      return "loop";
    case Mapping::kShared:
      return "shared";
    case Mapping::kColumn:
      return "column";
    case Mapping::kRow:
      return "row";
    case Mapping::kBuffer:
      return "buffer";
  }
  return "";
}

Json Schedule::ToJson() const {
  return Json{{"items", items},
              {"mapping", MappingName(mapping)},
              {"rows", rows},
              {"threads", threads},
              {"vector", vector}};
}

}  // namespace cudaforge::rows
