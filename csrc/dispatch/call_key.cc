#include "dispatch/call_key.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/append_only_table.h"
#include "signature/from_aten_call.h"

namespace cudaforge {
namespace {

// The low byte of an argument's first word. The other bytes are its value, if that fits.
enum Tag : uint64_t {
  kNone,
  kTensor,       // followed by a word for each dimension
  kLargeTensor,  // followed by two words for each dimension: a size or stride exceeds 32 bits
  kNumber,
  kInt,
  kLargeInt,
  kDouble,
  kBool,
  kString,
  kDevice,
  kList
};
constexpr int kTagBits = 8;

uint64_t Word(Tag tag, uint64_t value) { return tag | value << kTagBits; }

// Both halves of a product, as in Wang Yi's wyhash. Short and without tables, because it is rarely
// in the first-level cache.
uint64_t Mix(uint64_t hash, uint64_t word) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{hash ^ word} * kGoldenRatio;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t DeviceBits(c10::Device device) {
  return uint64_t{static_cast<uint8_t>(device.type())} << 8 | static_cast<uint8_t>(device.index());
}

}  // namespace

bool CallKey::Read(c10::ArrayRef<c10::IValue> args, uint64_t settings) {
  words_.clear();
  tensors_.clear();
  *Extend(1) = settings;
  for (const c10::IValue& arg : args) {
    if (!Add(arg)) return false;
  }
  if (tensors_.empty()) return false;
  hash_ = 0;
  for (const uint64_t word : words_) hash_ = Mix(hash_, word);
  return true;
}

inline uint64_t* CallKey::Extend(size_t count) {
  const size_t begin = words_.size();
  words_.resize_for_overwrite(begin + count);
  return words_.data() + begin;
}

inline void CallKey::Add(uint64_t first, uint64_t second) {
  uint64_t* const words = Extend(2);
  words[0] = first;
  words[1] = second;
}

bool CallKey::Add(const c10::IValue& value) {
  if (value.isTensor()) return AddTensor(value.toTensor());
  if (value.isNone()) {
    *Extend(1) = kNone;
  } else if (value.isInt()) {
    const auto number = static_cast<uint64_t>(value.toInt());
    const uint64_t word = Word(kInt, number);
    if (word >> kTagBits == number) {
      *Extend(1) = word;
    } else {
      Add(kLargeInt, number);
    }
  } else if (value.isDouble()) {
    Add(kDouble, std::bit_cast<uint64_t>(value.toDouble()));
  } else if (value.isBool()) {
    *Extend(1) = Word(kBool, value.toBool());
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> list = value.toListRef();
    *Extend(1) = Word(kList, list.size());
    for (const c10::IValue& element : list) {
      if (!Add(element)) return false;
    }
  } else {
    return AddRare(value);
  }
  return true;
}

[[gnu::noinline]] bool CallKey::AddRare(const c10::IValue& value) {
  if (value.isDevice()) {
    *Extend(1) = Word(kDevice, DeviceBits(value.toDevice()));
    return true;
  }
  if (!value.isString()) return false;
  const std::string& text = value.toStringRef();
  *Extend(1) = Word(kString, text.size());
  for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
    *Extend(1) = word;
  }
  return true;
}

bool CallKey::AddTensor(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined()) {
    *Extend(1) = kNone;
    return true;
  }
  if (!IsPlain(tensor)) return false;
  if (impl->is_wrapped_number()) [[unlikely]]
    return AddNumber(tensor);
  const auto dtype = static_cast<uint64_t>(tensor.scalar_type());
  // Whether it is an earlier tensor, or shares its storage: 1 + the earlier one's place.
  uint64_t same = 0, shared = 0;
  const c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (same == 0 && tensors_[i] == impl) same = i + 1;
    if (shared == 0 && tensors_[i]->unsafe_storage().unsafeGetStorageImpl() == storage) {
      shared = i + 1;
    }
  }
  tensors_.push_back(impl);
  const auto dims = static_cast<uint64_t>(impl->dim());
  const auto alignment = static_cast<uint64_t>(KnownAlignment(tensor));
  const uint64_t facts = dtype | dims << 8 | alignment << 16 | (same & 0xff) << 24 |
                         (shared & 0xff) << 32 | DeviceBits(tensor.device()) << 40;
  AddDims(facts, impl->sizes(), impl->strides());
  return tensors_.size() < 256 && dims < 256;  // each has a byte of the facts
}

[[gnu::noinline]] bool CallKey::AddNumber(const at::Tensor& tensor) {
  uint64_t number = 0;
  const size_t bytes = tensor.itemsize();
  if (!tensor.device().is_cpu() || bytes > sizeof(number)) return false;
  std::memcpy(&number, tensor.const_data_ptr(), bytes);
  Add(Word(kNumber, static_cast<uint64_t>(tensor.scalar_type())), number);
  return true;
}

void CallKey::AddDims(uint64_t facts, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const size_t begin = words_.size(), dims = sizes.size();
  uint64_t* word = Extend(1 + dims);
  *word++ = Word(kTensor, facts);
  uint64_t bits = 0;
  for (size_t d = 0; d < dims; ++d) {
    const auto size = static_cast<uint64_t>(sizes[d]), stride = static_cast<uint64_t>(strides[d]);
    bits |= size | stride;
    *word++ = size | stride << 32;
  }
  if (bits >> 32 == 0) [[likely]]
    return;
  words_.resize_for_overwrite(begin);
  word = Extend(1 + 2 * dims);
  *word++ = Word(kLargeTensor, facts);
  for (const c10::IntArrayRef numbers : {sizes, strides}) {
    for (const int64_t number : numbers) *word++ = static_cast<uint64_t>(number);
  }
}

}  // namespace cudaforge
