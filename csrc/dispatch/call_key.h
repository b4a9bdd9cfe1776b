// CallKey: one ATen call as 64-bit words that compare fast. Holds only what can be read without
// allocating.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace cudaforge {

class CallKey {
 public:
  // Reads a call's arguments. Returns false if the call must run in PyTorch: it has no tensor, or
  // an argument that has no words (a tensor that is not IsPlain, a generator, a stream).
  // `settings`: a word of what else the call depends on. Allocates only for calls of very many
  // words or tensors. Throws only std::bad_alloc.
  bool Read(c10::ArrayRef<c10::IValue> args, uint64_t settings);

  uint64_t hash() const { return hash_; }
  c10::ArrayRef<uint64_t> words() const { return words_; }
  // The `settings` that Read was given.
  uint64_t settings() const { return words_.front(); }
  // The device of the first tensor. REQUIRES: Read returned true, and that tensor lives.
  c10::Device device() const { return tensors_.front()->device(); }

 private:
  bool Add(const c10::IValue& value);
  void Add(uint64_t first, uint64_t second);
  bool AddRare(const c10::IValue& value);  // kinds of arguments that few calls have
  bool AddTensor(const at::Tensor& tensor);
  bool AddNumber(const at::Tensor& tensor);  // a tensor that PyTorch made of a number
  void AddDims(uint64_t facts, c10::IntArrayRef sizes, c10::IntArrayRef strides);
  // Appends `count` words, which the caller writes.
  uint64_t* Extend(size_t count);

  c10::SmallVector<uint64_t, 80> words_;
  c10::SmallVector<const c10::TensorImpl*, 8> tensors_;
  uint64_t hash_ = 0;
};

}  // namespace cudaforge
