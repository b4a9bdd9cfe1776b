#include "generators/rows/emit.h"

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

LaunchArg ArgOf(const BufferRef& buffer) {
  LaunchArg arg;
  arg.kind = buffer.kind == BufferKind::kInput    ? LaunchArg::Kind::kInput
             : buffer.kind == BufferKind::kOutput ? LaunchArg::Kind::kOutput
                                                  : LaunchArg::Kind::kScratch;
  arg.index = buffer.index;
  return arg;
}

Json Schedule::ToJson(DeviceType device) const {
  Json json = {{"mapping", MappingName(mapping)}};
  const bool cuda = device == DeviceType::kCuda;
  if (cuda || mapping == Mapping::kColumn) {
    json["items"] = items;
    json["vector"] = vector;
  }
  if (cuda) {
    json["rows"] = rows;
    json["threads"] = threads;
  }
  return json;
}

}  // namespace cudaforge::rows
