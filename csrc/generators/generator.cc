#include "generators/generator.h"

#include "base/text.h"
#include "generators/library/search.h"
#include "generators/rows/lower/node.h"
#include "generators/rows/row_program.h"
#include "generators/rows/search.h"
#include "generators/tiles/search.h"
#include "signature/op_facts.h"

namespace cudaforge {

Status KnowsMultiprocessors(const DeviceArch& arch) {
  if (arch.multiprocessors.value_or(0) > 0) return Status::Ok();
  return Status::Unsupported("the device does not report its number of multiprocessors");
}

std::span<const Generator> Generators() {
  static constexpr Generator kGenerators[] = {
      {"product", &tiles::CanGenerateProduct, &tiles::MakeProductSearch},
      {"library", &library::CanGenerateLibraryProduct, &library::MakeLibrarySearch},
      {"rows",
       [](const OpSignature& signature, std::string_view) {
         return rows::Lower(signature).status();
       },
       &rows::MakeRowSearch},
  };
  return kGenerators;
}

Status CanGenerate(const OpSignature& signature, std::string_view target) {
  Status why = Status::Unsupported("no generator makes kernels for this region");
  bool known = false;
  for (const Generator& generator : Generators()) {
    const Status status = generator.can_make(signature, target);
    if (status.ok()) return status;
    if (known || status.code() == StatusCode::kNotFound) continue;
    why = status;
    known = true;
  }
  return why;
}

bool GeneratesHeavyOps(std::string_view target) { return target.starts_with("cuda:"); }

const std::vector<std::string>& AnchorOps() {
  static const std::vector<std::string> kNames = rows::OverloadNames(true);
  return kNames;
}

const std::vector<std::string>& PointwiseOps() {
  static const std::vector<std::string> kNames = rows::OverloadNames(false);
  return kNames;
}

Status IsAgentRegion(const OpSignature& signature) {
  int anchors = 0;
  for (const Node& node : signature.nodes) {
    if (IsIn(node.op, HeavyOps())) {
      ++anchors;
    } else if (!IsIn(node.op, PointwiseOps())) {
      return Status::Unsupported(node.op + " is no part of a region that agents write");
    }
  }
  if (anchors == 1) return Status::Ok();
  return Status::Unsupported(
      "the region has " + std::to_string(anchors) +
      " matrix products, convolutions or attentions; it must have exactly one");
}

}  // namespace cudaforge
