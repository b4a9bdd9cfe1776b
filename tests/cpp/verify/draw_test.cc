// The bits of a drawn tensor: the generator, rounding, the order of memory, the device.
#include "verify/device/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "tests/cpp/verify/drawn.h"
#include "tests/cpp/verify/drawn_forms.h"
#include "verify/draw_layout.h"

namespace cudaforge {
namespace {

using device::DrawForm;
using device::DrawnTensor;

TEST(Philox, KnownAnswers) {
  const auto words = [](uint64_t key, uint64_t counter, uint32_t third, uint32_t fourth) {
    const device::Words4 w = device::Philox(key, counter, third, fourth);
    return std::vector<uint32_t>{w.w0, w.w1, w.w2, w.w3};
  };
  using Answer = std::vector<uint32_t>;
  EXPECT_EQ(words(0, 0, 0, 0), (Answer{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~uint64_t{0}, ~uint64_t{0}, ~0u, ~0u),
            (Answer{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e, 0x03707344),
            (Answer{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DrawDivision, Exact) {
  uint64_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = device::Mix64(state + 0x9e3779b97f4a7c15u);
    const auto value = static_cast<int64_t>((state >> 1) >> (state & 63)) + 1;
    const uint64_t n = device::Mix64(state) >> 1 >> (state >> 6 & 63);
    for (const uint64_t near : {n, n / static_cast<uint64_t>(value) * value, uint64_t{0}}) {
      ASSERT_EQ(device::Quotient(near, DivisorOf(value)), near / static_cast<uint64_t>(value));
      if (near > 0) {
        ASSERT_EQ(device::Quotient(near - 1, DivisorOf(value)),
                  (near - 1) / static_cast<uint64_t>(value));
      }
    }
  }
}

TEST(DrawRounding, HalvesMatchAReference) {
  const auto check = [](uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    uint16_t half = 0, brain = 0;
    StoreElement(DType::kFloat16, value, reinterpret_cast<char*>(&half));
    StoreElement(DType::kBFloat16, value, reinterpret_cast<char*>(&brain));
    if (std::isnan(value)) {
      EXPECT_GT(device::Float16Of(bits) & 0x7fff, 0x7c00);
      EXPECT_GT(device::BFloat16Of(bits) & 0x7fff, 0x7f80);
      EXPECT_EQ(device::Float16Of(bits) >> 15, bits >> 31);
      EXPECT_EQ(device::BFloat16Of(bits) >> 15, bits >> 31);
      return;
    }
    ASSERT_EQ(device::Float16Of(bits), half) << value;
    ASSERT_EQ(device::BFloat16Of(bits), brain) << value;
  };
  for (uint32_t high = 0; high < 0x10000; ++high) {
    // Near every tie of either format.
    for (const uint32_t low :
         {0x0u, 0x1u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      check(high << 16 | low);
    }
  }
}

TEST(DrawRounding, Float8) {
  const auto e4m3 = [](float value) {
    return device::Float8E4M3Of(std::bit_cast<uint32_t>(value));
  };
  const auto e5m2 = [](float value) {
    return device::Float8E5M2Of(std::bit_cast<uint32_t>(value));
  };
  EXPECT_EQ(e4m3(1), 0x38);
  EXPECT_EQ(e4m3(-448), 0xfe);
  EXPECT_EQ(e4m3(464), 0x7e);  // to even
  EXPECT_EQ(e4m3(465), 0x7f);
  EXPECT_EQ(e4m3(INFINITY), 0x7f);
  EXPECT_EQ(e4m3(NAN), 0x7f);
  EXPECT_EQ(e4m3(0x1p-9F), 0x01);
  EXPECT_EQ(e4m3(0x1p-10F), 0x00);  // half of it: to even
  EXPECT_EQ(e4m3(0x1.8p-10F), 0x01);
  EXPECT_EQ(e4m3(1.0625F), 0x38);
  EXPECT_EQ(e4m3(1.1875F), 0x3a);
  EXPECT_EQ(e5m2(1), 0x3c);
  EXPECT_EQ(e5m2(57344), 0x7b);
  EXPECT_EQ(e5m2(61440), 0x7c);
  EXPECT_EQ(e5m2(-INFINITY), 0xfc);
  EXPECT_GT(e5m2(NAN), 0x7c);
  EXPECT_EQ(e5m2(0x1p-16F), 0x01);
  // Every number rounds to itself.
  for (uint32_t bits = 0; bits < 0x7f; ++bits) {
    const int exponent = static_cast<int>(bits >> 3), fraction = static_cast<int>(bits & 7);
    const double value =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    EXPECT_EQ(e4m3(static_cast<float>(value)), bits);
  }
}

// Finds each storage element's position by brute force.
void ExpectPositions(const TensorSpec& spec, const std::vector<int64_t>& together) {
  const DrawnTensor tensor = LayOut(spec, together);
  std::vector<std::pair<int64_t, int64_t>> want(static_cast<size_t>(tensor.elements), {-1, -1});
  for (ElementWalk walk(spec, /*skip_repeats=*/true); !walk.done(); walk.Next()) {
    int64_t group = 0, place = 0;
    for (size_t d = 0; d < spec.sizes.size(); ++d) {
      const int64_t size = spec.strides[d] == 0 ? 1 : spec.sizes[d];
      const int64_t inner = std::min(together[d], size);
      group = group * (size / inner) + walk.position()[d] / inner;
      place = place * inner + walk.position()[d] % inner;
    }
    want[static_cast<size_t>(walk.offset())] = {group, place};
  }
  for (int64_t offset = 0; offset < tensor.elements;) {
    const device::DrawPosition at = device::DrawPositionOf(tensor, offset);
    ASSERT_GE(at.run, 1);
    for (int64_t i = 0; i < at.run && offset + i < tensor.elements; ++i) {
      const auto& [group, place] = want[static_cast<size_t>(offset + i)];
      ASSERT_EQ(at.gap, group < 0) << offset + i;
      if (at.gap) continue;
      ASSERT_EQ(at.group + i * at.group_step, group);
      ASSERT_EQ(at.place + i * at.place_step, place);
    }
    offset += at.run;
  }
}

TEST(DrawLayout, EveryElementOfEveryLayout) {
  ExpectPositions(Spec(DType::kFloat32, {5, 7}), {1, 7});
  ExpectPositions(Spec(DType::kFloat32, {5, 7}), {5, 1});
  ExpectPositions(Spec(DType::kFloat32, {5, 7}), {5, 7});
  ExpectPositions(Spec(DType::kFloat32, {3, 4, 5}), {3, 1, 5});
  ExpectPositions(Spec(DType::kFloat32, {2, 6, 5}), {1, 3, 5});  // groups of channels
  ExpectPositions(Spec(DType::kFloat32, {2, 6, 3, 5}, {90, 1, 30, 6}), {1, 3, 3, 5});
  ExpectPositions(Spec(DType::kFloat32, {5, 7}, {1, 5}), {1, 7});
  ExpectPositions(Spec(DType::kFloat32, {4, 8}, {20, 2}), {1, 8});
  ExpectPositions(Spec(DType::kFloat32, {4, 8}, {300, 1}), {4, 1});
  ExpectPositions(Spec(DType::kFloat32, {6, 3, 8}, {8, 0, 1}), {1, 3, 8});
  ExpectPositions(Spec(DType::kFloat32, {}), {});
  EXPECT_EQ(LayOut(Spec(DType::kFloat32, {0, 8}), {1, 8}).elements, 0);
  // Overlapping windows: every element of the storage is a number.
  const DrawnTensor windows = LayOut(Spec(DType::kInt64, {4, 3}, {1, 2}), {1, 3});
  for (int64_t offset = 0; offset < windows.elements; ++offset) {
    EXPECT_FALSE(device::DrawPositionOf(windows, offset).gap);
  }
}

// Compares the loops over runs with the definition.
template <device::DrawType kType>
void ExpectElements(DType dtype, const std::vector<DrawnTensor>& tensors) {
  using Stored = typename device::DrawTraits<kType>::Stored;
  for (const DrawnTensor& tensor : tensors) {
    const std::string bytes = BytesOfTensor(dtype, tensor, 99);
    const device::DrawKey key = device::DrawKeyOf(99, tensor.stream);
    for (int64_t offset = 0; offset < tensor.elements; ++offset) {
      const device::Words4 four = device::DrawWords(key, static_cast<uint64_t>(offset / 4));
      const uint32_t words[] = {four.w0, four.w1, four.w2, four.w3};
      const device::DrawPosition at = device::DrawPositionOf(tensor, offset);
      const device::DrawRow row = at.gap ? device::GapRowOf(tensor, key)
                                         : device::DrawRowOf(tensor, key, at.group, at.place);
      Stored want = device::StoredOf<kType>(device::ElementBits<kType>(
          tensor, row, at.group, at.gap ? 0 : at.place, words[offset % 4]));
      if (at.gap && tensor.gap_is_ordinary == 0) want = static_cast<Stored>(~uint64_t{0});
      if (tensor.spots > 0 && offset == tensor.spot[0].offset) {
        want = device::StoredOf<kType>(
            static_cast<typename device::DrawTraits<kType>::Bits>(tensor.spot[0].bits));
      }
      Stored got;
      std::memcpy(&got, bytes.data() + static_cast<size_t>(offset) * sizeof(Stored), sizeof(got));
      ASSERT_EQ(got, want) << DTypeName(dtype) << " form " << static_cast<int>(tensor.kinds[0].form)
                           << " at " << offset;
    }
  }
}

TEST(DrawLoops, AsDefinedElementByElement) {
  const auto expect = []<device::DrawType kType>(DType dtype) {
    ExpectElements<kType>(dtype, TensorsOfEveryForm(dtype));
  };
  expect.operator()<device::DrawType::kFloat32>(DType::kFloat32);
  expect.operator()<device::DrawType::kFloat16>(DType::kFloat16);
  expect.operator()<device::DrawType::kBFloat16>(DType::kBFloat16);
  expect.operator()<device::DrawType::kFloat64>(DType::kFloat64);
  expect.operator()<device::DrawType::kInt64>(DType::kInt64);
  expect.operator()<device::DrawType::kInt32>(DType::kInt32);
  expect.operator()<device::DrawType::kBool>(DType::kBool);
}

// Parts that begin inside a row or column.
TEST(DrawLoops, AsDefinedInSeveralThreads) {
  const TensorSpec spec = Spec(DType::kFloat32, {701, 903});
  std::vector<DrawnTensor> tensors;
  for (const int64_t axis : {0, 1}) {
    const OpSignature sum = Call("aten::sum.dim_IntList", {Arg(0), Json::array({axis}), false},
                                 {spec}, {Spec(DType::kFloat32, {axis == 0 ? 903 : 701})});
    for (const char* name : {"normal", "mixed", "one_special"}) {
      tensors.push_back(DrawNamed(sum, name).at(0).set.tensors[0]);
    }
  }
  ExpectElements<device::DrawType::kFloat32>(DType::kFloat32, tensors);
}

// Bits that must never change unnoticed: if kernel and loop changed alike, other tests would pass.
TEST(DrawNumbers, NearlyNormalWithFullPrecision) {
  const OpSignature signature =
      Call("aten::relu", Json::array({Arg(0)}), {Spec(DType::kFloat32, {200, 1000})},
           {Spec(DType::kFloat32, {200, 1000})});
  const std::vector<double> values =
      DrawnValues(signature.inputs[0], DrawNamed(signature, "normal")[0].bytes[0]);
  double sum = 0, squares = 0;
  std::set<double> distinct;
  int odd = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
    distinct.insert(value);
    odd += static_cast<int>(std::bit_cast<uint32_t>(static_cast<float>(value)) & 1);
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_GT(distinct.size(), values.size() * 99 / 100);
  EXPECT_NEAR(odd / n, 0.5, 0.01);  // the last bit of the significand
}

TEST(Drawer, OtherSetsAreRefused) {
  const OpSignature signature = Call("aten::relu", Json::array({Arg(0)}),
                                     {Spec(DType::kFloat32, {8})}, {Spec(DType::kFloat32, {8})});
  const auto drawer = Drawer::Create(DeviceType::kCpu, nullptr);
  ASSERT_TRUE(drawer.ok());
  float memory[8];
  void* const storage[] = {memory};
  DrawSet set = DrawAll(signature)[0].set;
  set.tensors[0].elements = 9;
  EXPECT_EQ((*drawer)->Draw(set, signature, 1, storage).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((*drawer)->Draw(set, signature, 1, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Drawer::Create(DeviceType::kCuda, nullptr).ok());
}

}  // namespace
}  // namespace cudaforge
