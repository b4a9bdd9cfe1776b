#include "verify/draw_loops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "verify/device/draw.h"

// The sanitizers do not support functions that are selected at program start.
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CF_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define CF_CLONES
#endif

namespace cudaforge {
namespace {

using device::DrawForm;
using device::DrawKey;
using device::DrawnTensor;
using device::DrawPosition;
using device::DrawRow;
using device::DrawTraits;
using device::DrawType;

constexpr int64_t kPiece = 2048;  // elements made at a time, to fit the first-level cache

// Calls body.operator()<form>(), inlined.
template <typename Body>
CF_DRAW void WithForm(DrawForm form, const Body& body) {
#define CF_DRAW_FORM(NAME)                      \
  case DrawForm::NAME:                          \
    body.template operator()<DrawForm::NAME>(); \
    return;
  switch (form) {
    CF_DRAW_FORMS(CF_DRAW_FORM)
    default:
      body.template operator()<DrawForm::kNormal>();
  }
#undef CF_DRAW_FORM
}

CF_CLONES void MakeWords(const DrawKey& key, int64_t block, int64_t blocks, uint32_t* words) {
  const DrawKey copy = key;
  for (int64_t i = 0; i < blocks; ++i) {
    const device::Words4 four = device::DrawWords(copy, static_cast<uint64_t>(block + i));
    words[4 * i] = four.w0;
    words[4 * i + 1] = four.w1;
    words[4 * i + 2] = four.w2;
    words[4 * i + 3] = four.w3;
  }
}

// Elements of one row with places `step` apart, without its special one.
CF_CLONES void MakeRun(const DrawnTensor& tensor, const DrawRow& row, int64_t place, int64_t step,
                       const uint32_t* words, int64_t n, uint32_t* bits) {
  WithForm(
      row.form, [&]<DrawForm kForm>() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) {
          bits[i] = device::FormBits<kForm, float>(tensor, row, place + i * step, words[i]);
        }
      });
}

CF_CLONES void MakeRun(const DrawnTensor& tensor, const DrawRow& row, int64_t place, int64_t step,
                       const uint32_t* words, int64_t n, uint64_t* bits) {
  WithForm(
      row.form, [&]<DrawForm kForm>() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) {
          bits[i] = device::FormBits<kForm, double>(tensor, row, place + i * step, words[i]);
        }
      });
}

CF_CLONES void StoreFloat16(const uint32_t* bits, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = device::Float16Of(bits[i]);
}
CF_CLONES void StoreBFloat16(const uint32_t* bits, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = device::BFloat16Of(bits[i]);
}

template <DrawType kType, typename Bits, typename Stored>
void StoreRun(const Bits* bits, int64_t n, Stored* to) {
  if constexpr (kType == DrawType::kFloat16) {
    StoreFloat16(bits, n, to);
  } else if constexpr (kType == DrawType::kBFloat16) {
    StoreBFloat16(bits, n, to);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = device::StoredOf<kType>(bits[i]);
  }
}

// The rows of groups that are adjacent in memory, kept while their elements are drawn.
class RowsSideBySide {
 public:
  const DrawRow* Of(const DrawnTensor& tensor, const DrawKey& key, const DrawPosition& at,
                    int64_t n) {
    const auto segment =
        static_cast<int64_t>(device::Quotient(static_cast<uint64_t>(at.place), tensor.row_length));
    if (at.group == group_ && segment == segment_ && n <= n_) return rows_.data();
    rows_.resize(static_cast<size_t>(kPiece));
    for (int64_t i = 0; i < n; ++i) {
      rows_[static_cast<size_t>(i)] =
          device::DrawRowOf(tensor, key, at.group + i * at.group_step, at.place);
    }
    group_ = at.group;
    segment_ = segment;
    n_ = n;
    return rows_.data();
  }

 private:
  std::vector<DrawRow> rows_;
  int64_t group_ = -1, segment_ = 0, n_ = 0;
};

// `n` elements from `at`, in one run along places.
template <DrawType kType, typename Bits>
void DrawRun(const DrawnTensor& tensor, const DrawKey& key, const DrawPosition& at,
             const uint32_t* words, int64_t n, Bits* bits) {
  for (int64_t i = 0; i < n;) {
    const int64_t place = at.place + i * at.place_step;
    const DrawRow row = device::DrawRowOf(tensor, key, at.group, place);
    int64_t row_run = n - i;
    if (tensor.rows_of_group > 1 && at.place_step > 0) {
      const auto length = static_cast<int64_t>(tensor.row_length.value);
      const int64_t left = length - place % length;
      row_run = std::min(row_run, (left + at.place_step - 1) / at.place_step);
    }
    if constexpr (DrawTraits<kType>::kIsReal) {
      MakeRun(tensor, row, place, at.place_step, words + i, row_run, bits + i);
      const int64_t special = row.special_place - place;
      if (row.special_place >= 0 && at.place_step > 0 && special >= 0 &&
          special % at.place_step == 0 && special / at.place_step < row_run) {
        bits[i + special / at.place_step] = static_cast<Bits>(row.special_bits);
      } else if (at.place_step == 0 && special == 0) {
        bits[i] = static_cast<Bits>(row.special_bits);
      }
    } else {
      for (int64_t k = 0; k < row_run; ++k) {
        bits[i + k] = device::ElementBits<kType>(tensor, row, at.group + (i + k) * at.group_step,
                                                 place + k * at.place_step, words[i + k]);
      }
    }
    i += row_run;
  }
}

// Elements [from, to), at most kPiece.
template <DrawType kType>
void DrawPiece(const DrawnTensor& tensor, const DrawKey& key, int64_t from, int64_t to,
               RowsSideBySide& side_by_side, typename DrawTraits<kType>::Stored* out) {
  using Stored = typename DrawTraits<kType>::Stored;
  using Bits = typename DrawTraits<kType>::Bits;
  alignas(64) uint32_t words[kPiece + 4];
  alignas(64) Bits bits[kPiece];
  const int64_t block = from / 4;
  MakeWords(key, block, (to + 3) / 4 - block, words);
  for (int64_t offset = from; offset < to;) {
    const DrawPosition at = device::DrawPositionOf(tensor, offset);
    const int64_t n = std::min(at.run, to - offset);
    const uint32_t* const of_run = words + (offset - 4 * block);
    if (at.gap && tensor.gap_is_ordinary == 0) {
      std::memset(out + offset, 0xff, static_cast<size_t>(n) * sizeof(Stored));
    } else if (at.gap) {
      const DrawRow row = device::GapRowOf(tensor, key);
      for (int64_t i = 0; i < n; ++i) {
        out[offset + i] =
            device::StoredOf<kType>(device::ElementBits<kType>(tensor, row, 0, 0, of_run[i]));
      }
    } else {
      if (at.group_step != 0 && tensor.same_kinds == 0) {
        const DrawRow* const rows = side_by_side.Of(tensor, key, at, n);
        for (int64_t i = 0; i < n; ++i) {
          bits[i] = device::ElementBits<kType>(tensor, rows[i], at.group + i * at.group_step,
                                               at.place, of_run[i]);
        }
      } else {
        DrawRun<kType>(tensor, key, at, of_run, n, bits);
      }
      StoreRun<kType>(bits, n, out + offset);
    }
    offset += n;
  }
  for (int s = 0; s < tensor.spots; ++s) {
    const device::DrawSpot& spot = tensor.spot[s];
    if (spot.offset < from || spot.offset >= to) continue;
    out[spot.offset] = device::StoredOf<kType>(static_cast<Bits>(spot.bits));
  }
}

template <DrawType kType>
void DrawTyped(const DrawnTensor& tensor, const DrawKey& key, int64_t begin, int64_t end,
               void* storage) {
  auto* const out = static_cast<typename DrawTraits<kType>::Stored*>(storage);
  RowsSideBySide side_by_side;
  // For adjacent groups, works in tiles so that their rows are made once.
  int64_t width = end - begin, origin = begin;
  if (tensor.rank > 1 && tensor.dims[tensor.rank - 1].group_step != 0) {
    width = static_cast<int64_t>(tensor.dims[tensor.rank - 2].stride.value);
    origin = begin / width * width;
  }
  for (int64_t tile = 0; tile < width; tile += kPiece) {
    for (int64_t line = origin; line < end; line += width) {
      const int64_t from = std::max(begin, line + tile);
      const int64_t to = std::min(end, line + std::min(tile + kPiece, width));
      if (from < to) DrawPiece<kType>(tensor, key, from, to, side_by_side, out);
    }
  }
}

}  // namespace

void DrawRange(const DrawnTensor& tensor, const DrawKey& key, int64_t begin, int64_t end,
               void* storage) {
  switch (tensor.type) {
    case DrawType::kFloat32:
      return DrawTyped<DrawType::kFloat32>(tensor, key, begin, end, storage);
    case DrawType::kFloat16:
      return DrawTyped<DrawType::kFloat16>(tensor, key, begin, end, storage);
    case DrawType::kBFloat16:
      return DrawTyped<DrawType::kBFloat16>(tensor, key, begin, end, storage);
    case DrawType::kFloat64:
      return DrawTyped<DrawType::kFloat64>(tensor, key, begin, end, storage);
    case DrawType::kInt64:
      return DrawTyped<DrawType::kInt64>(tensor, key, begin, end, storage);
    case DrawType::kInt32:
      return DrawTyped<DrawType::kInt32>(tensor, key, begin, end, storage);
    case DrawType::kBool:
      return DrawTyped<DrawType::kBool>(tensor, key, begin, end, storage);
  }
}

}  // namespace cudaforge
