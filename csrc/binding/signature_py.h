// Python's form of a signature: Signature in _C.pyi.
#pragma once

#include <string>
#include <utility>

#include "signature/op_signature.h"

namespace cudaforge::binding {

// Immutable. Functions of the module take it for an OpSignature, its text or its key.
struct Signature : OpSignature {
  explicit Signature(OpSignature signature)
      : OpSignature(std::move(signature)), text(Canonical()), key(Key()) {}

  const std::string text;  // canonical
  const std::string key;
};

}  // namespace cudaforge::binding
