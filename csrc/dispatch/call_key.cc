#include "dispatch/call_key.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "signature/from_aten_call.h"

namespace cudaforge {
namespace {

// The low byte of the word that an argument begins with.
enum Tag : uint64_t { kNone, kTensor, kNumber, kInt, kDouble, kBool, kString, kDevice, kList };

// Two chains of multiplications, which the processor runs beside each other.
uint64_t Hash(c10::ArrayRef<uint64_t> words) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t chains[2] = {words.size(), kOdd};
  for (size_t i = 0; i < words.size(); ++i) {
    uint64_t& chain = chains[i % 2];
    chain = (chain ^ words[i]) * kOdd;
    chain ^= chain >> 32;
  }
  const uint64_t hash = (chains[0] ^ std::rotl(chains[1], 29)) * kOdd;
  return hash ^ (hash >> 32);
}

}  // namespace

bool CallKey::Read(c10::ArrayRef<c10::IValue> args, uint64_t numerics) {
  words_.clear();
  tensors_.clear();
  words_.push_back(numerics);
  for (const c10::IValue& arg : args) {
    if (!Add(arg)) return false;
  }
  if (tensors_.empty()) return false;
  hash_ = Hash(words_);
  return true;
}

bool CallKey::Add(const c10::IValue& value) {
  if (value.isTensor()) return AddTensor(value.toTensor());
  if (value.isNone()) {
    words_.push_back(kNone);
  } else if (value.isInt()) {
    words_.append({kInt, static_cast<uint64_t>(value.toInt())});
  } else if (value.isDouble()) {
    words_.append({kDouble, std::bit_cast<uint64_t>(value.toDouble())});
  } else if (value.isBool()) {
    words_.append({kBool, uint64_t{value.toBool()}});
  } else if (value.isDevice()) {
    const c10::Device device = value.toDevice();
    words_.append({kDevice, static_cast<uint64_t>(device.type()) << 8 |
                                static_cast<uint8_t>(device.index())});
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    words_.push_back(kString | uint64_t{text.size()} << 8);
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
      words_.push_back(word);
    }
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> list = value.toListRef();
    words_.push_back(kList | uint64_t{list.size()} << 8);
    for (const c10::IValue& element : list) {
      if (!Add(element)) return false;
    }
  } else {
    return false;
  }
  return true;
}

bool CallKey::AddTensor(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) {
    words_.push_back(kNone);
    return true;
  }
  if (!IsPlain(tensor)) return false;
  const uint64_t kind = static_cast<uint64_t>(tensor.scalar_type()) << 8;
  const c10::Device device = tensor.device();
  if (impl->is_wrapped_number()) {
    uint64_t number = 0;
    if (!device.is_cpu() || impl->itemsize() > sizeof(number)) return false;
    std::memcpy(&number, tensor.const_data_ptr(), impl->itemsize());
    words_.append({kNumber | kind, number});
    return true;
  }
  // Whether it is an earlier one, or of an earlier one's storage: 1 + that one's place.
  uint64_t same = 0, shared = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (same == 0 && tensors_[i] == impl) same = i + 1;
    if (shared == 0 &&
        tensors_[i]->storage().unsafeGetStorageImpl() == impl->storage().unsafeGetStorageImpl()) {
      shared = i + 1;
    }
  }
  if (tensors_.empty()) device_ = device;
  tensors_.push_back(impl);
  const auto alignment = static_cast<uint64_t>(KnownAlignment(tensor.const_data_ptr()));
  words_.append({kTensor | kind | uint64_t(tensor.dim()) << 16 | alignment << 24 |
                     (same & 0xff) << 32 | (shared & 0xff) << 40,
                 static_cast<uint64_t>(device.type()) << 8 | static_cast<uint8_t>(device.index())});
  for (const int64_t size : tensor.sizes()) words_.push_back(static_cast<uint64_t>(size));
  for (const int64_t stride : tensor.strides()) words_.push_back(static_cast<uint64_t>(stride));
  return tensors_.size() < 256;
}

}  // namespace cudaforge
