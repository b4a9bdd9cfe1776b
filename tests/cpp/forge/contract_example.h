// The worked example of a contract document, taken out of its text as a Coder's reply would be.
#pragma once

#include <string>

#include "forge/knowledge.h"
#include "kernel/candidate.h"
#include "llm/reply_parser.h"

namespace cudaforge {

// The region that both examples are for: softmax over rows of 1003 floats.
inline OpSignature ExampleRegion(DeviceType device) {
  OpSignature signature;
  signature.device = device;
  TensorSpec spec{DType::kFloat32, {256, 1003}, {1003, 1}, 16};
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
  CF_ASSIGN_OR_RETURN(JsonReply reply, ParseJsonReply(document->text));
  CF_ASSIGN_OR_RETURN(const CodeBlock block, ParseCodeBlock(document->text, {.take_last = true}));
  if (block.language != (language == Language::kCuda ? "cuda" : "cpp")) {
    return Status::InvalidArgument("the source is fenced as \"" + block.language + "\"");
  }
  reply.value["language"] = LanguageName(language);
  reply.value["code"] = block.code;
  reply.value["author"] = "contract";
  reply.value["params"] = Json::object();
  return Candidate::FromJson(reply.value);
}

}  // namespace cudaforge
