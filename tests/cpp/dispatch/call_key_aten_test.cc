#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "dispatch/call_key.h"

namespace cudaforge {
namespace {

using c10::IValue;
using Args = std::vector<IValue>;

std::vector<uint64_t> Words(const Args& args, uint64_t numerics = 0) {
  CallKey key;
  if (!key.Read(args, numerics)) return {};
  return key.words().vec();
}

TEST(CallKey, EqualCallsAreEqual) {
  const auto args = [] { return Args{at::randn({2, 3}), int64_t{-1}, false, IValue()}; };
  EXPECT_EQ(Words(args()), Words(args()));
  EXPECT_FALSE(Words(args()).empty());
}

TEST(CallKey, IncludesWhatASignatureDependsOn) {
  const at::Tensor x = at::randn({4, 4}), y = at::randn({4, 4});
  const at::Tensor bytes = at::zeros({80}, at::kByte);
  at::Tensor number = at::scalar_tensor(2.0), other = at::scalar_tensor(3.0);
  for (at::Tensor* one : {&number, &other}) {
    one->unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  const std::vector<Args> calls = {
      {x, int64_t{1}},
      {x, int64_t{2}},
      {x, 1.0},
      {x, true},
      {x, IValue()},
      {x.t(), int64_t{1}},
      {x.to(at::kDouble), int64_t{1}},
      {at::randn({4, 5}), int64_t{1}},
      // not aligned to an element
      {at::from_blob(bytes.data_ptr<uint8_t>() + 2, {4, 4}), int64_t{1}},
      {x, y},
      {x, x},
      {x, x.view({4, 4})},  // of the same storage
      {x, number},
      {x, other},
      {x, c10::List<int64_t>({1})},
      {x, c10::List<int64_t>({1, 2})},
      {x, std::string("none")},
      {x, std::string("tanh")},
      {x, c10::List<at::Tensor>({x, y})},
      {x, c10::List<at::Tensor>({y, x})},
      {x, at::Tensor()},  // equal to None
  };
  std::vector<std::vector<uint64_t>> words;
  for (const Args& call : calls) words.push_back(Words(call));
  for (size_t i = 0; i < words.size(); ++i) {
    EXPECT_FALSE(words[i].empty()) << i;
    for (size_t j = 0; j < i; ++j) {
      EXPECT_EQ(words[i] == words[j], i == 20 && j == 4) << i << " " << j;
    }
  }
  EXPECT_NE(Words(calls[0], 1), words[0]);
  const at::Tensor shifted = at::randn({17}).slice(0, 1).view({4, 4});
  EXPECT_EQ(Words({shifted, int64_t{1}}), words[0]) << "on a CPU elements may begin anywhere";
}

TEST(CallKey, HashesDistinguishCalls) {
  constexpr int64_t kSizes = 64;
  constexpr size_t kSlots = 2 * kSizes * kSizes;  // in a half full table
  const at::Tensor x = at::zeros({kSizes, kSizes});
  std::set<uint64_t> hashes, slots;
  for (int64_t rows = 1; rows <= kSizes; ++rows) {
    for (int64_t columns = 1; columns <= kSizes; ++columns) {
      CallKey key, again;
      const at::Tensor part = x.narrow(0, 0, rows).narrow(1, 0, columns);
      ASSERT_TRUE(key.Read(Args{part, int64_t{-1}, false}, 0));
      ASSERT_TRUE(again.Read(Args{part.detach(), int64_t{-1}, false}, 0));
      EXPECT_EQ(key.hash(), again.hash());
      hashes.insert(key.hash());
      slots.insert(key.hash() % kSlots);
    }
  }
  EXPECT_EQ(hashes.size(), kSizes * kSizes);
  // n values in 2 n random slots take 2 (1 - exp(-1/2)) n slots, 0.79 n.
  EXPECT_GT(slots.size(), kSizes * kSizes * 7 / 10);
}

TEST(CallKey, IncludesLargeNumbers) {
  constexpr int64_t kHigh = int64_t{1} << 32;
  const auto strided = [](int64_t size, int64_t stride) {
    return at::zeros({1}).as_strided({1, size}, {stride, 0});
  };
  const std::vector<Args> calls = {
      {strided(3, 1)},
      {strided(3 + kHigh, 1)},
      {strided(3, 1 + kHigh)},
      {strided(3 + kHigh, 1 + kHigh)},
      {strided(3, 1), int64_t{1}},
      {strided(3, 1), (int64_t{1} << 56) + 1},
      {strided(3, 1), (int64_t{1} << 62) + 1},
      {strided(3, 1), int64_t{-1}},
      {strided(3, 1), std::numeric_limits<int64_t>::min()},
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(Words(calls[i]), Words(calls[i])) << i;
    EXPECT_FALSE(Words(calls[i]).empty()) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_NE(Words(calls[i]), Words(calls[j])) << i << " " << j;
  }
}

TEST(CallKey, SomeCallsHaveNoKey) {
  EXPECT_TRUE(Words({int64_t{1}}).empty()) << "no tensor";
  EXPECT_TRUE(Words({at::eye(3).to_sparse()}).empty());
  EXPECT_TRUE(Words({at::_neg_view(at::randn({3}))}).empty());
  const at::Tensor given_back = at::randn({3}), none = at::empty({0});
  given_back.storage().set_data_ptr_noswap({});
  EXPECT_TRUE(Words({given_back}).empty());
  EXPECT_FALSE(Words({none}).empty());
  const auto dims = [](size_t count) {
    return at::zeros({1}).view(std::vector<int64_t>(count, 1));
  };
  EXPECT_FALSE(Words({dims(255)}).empty());
  EXPECT_TRUE(Words({dims(256)}).empty());
}

}  // namespace
}  // namespace cudaforge
