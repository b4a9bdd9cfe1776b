// The worked example of a contract document, extracted as if it were a Coder's reply.
#pragma once

#include <string>

#include "forge/agent/coder.h"
#include "forge/knowledge.h"
#include "kernel/candidate.h"

namespace cudaforge {

// The region that both examples are for: softmax over rows of 1003 floats.
inline OpSignature ExampleRegion(DeviceType device) {
  OpSignature signature;
  signature.device = device;
  TensorSpec spec{DType::kFloat32, {256, 1003}, {1003, 1}, device == DeviceType::kCpu ? 4 : 16};
  signature.inputs = {spec};
  Node node;
  node.op = "aten::_softmax";
  node.args = Json::array({Json{{"in", 0}}, -1, false});
  spec.alignment = 1;
  node.outputs = {spec};
  signature.nodes = {node};
  signature.outputs = {{0, 0}};
  return signature;
}

inline Result<Candidate> ContractExample(Language language) {
  const Document* document = FindDocument("contract/" + std::string(LanguageName(language)));
  if (document == nullptr) return Status::NotFound("no contract");
  return ParseCoderReply(document->text, language, "contract");
}

}  // namespace cudaforge
