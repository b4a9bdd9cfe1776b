#include "generators/emit.h"

namespace cudaforge::rows {

Json Schedule::ToJson() const {
  return Json{{"items", items},
              {"mapping", mapping},
              {"rows", rows},
              {"threads", threads},
              {"vector", vector}};
}

}  // namespace cudaforge::rows
