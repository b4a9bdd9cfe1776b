// Products by mma.sync, run on the host by mma_shim.h and compared with sums in float64.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "generators/tiles/device_texts.h"
#include "generators/tiles/product_f32.h"
#include "generators/tiles/product_half_mma.h"
#include "tests/cpp/generators/cuda_host_runs.h"
#include "tests/cpp/generators/tiles/mma_regions.h"

namespace cudaforge::tiles {
namespace {

using rows::GuardedBuffer;
using rows::Memory;
using rows::Spec;

struct Case {
  std::string name;
  OpSignature signature;
  Candidate candidate;
  std::vector<Memory> inputs;
  // What the output of a product is, from the sum and its place.
  std::function<double(double sum, size_t product, int64_t row, int64_t column)> result = {};
};

std::string Without(std::string text, const std::string& part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? text : text.erase(at, part.size());
}

MmaDevice Device(int64_t multiprocessors) {
  DeviceArch arch;
  arch.multiprocessors = multiprocessors;
  return MmaDevice(arch);
}

double LayerResult(const Case& c, double sum, int64_t row, int64_t column) {
  const int64_t n = c.signature.inputs[2].sizes[0];
  const double x = sum + c.inputs[2][static_cast<size_t>(column)].f;
  return 0.5 * x * std::erfc(-x * std::sqrt(0.5)) +
         c.inputs[3][static_cast<size_t>(row * n + column)].f;
}

class MmaHost : public testing::Test {
 protected:
  Case& Add(const std::string& name, const OpSignature& signature, int64_t parts,
            int64_t multiprocessors, int64_t n = 128) {
    const Result<Contraction> c = ReadContraction(signature);
    EXPECT_TRUE(c.ok()) << c.status().ToString();
    const MmaDevice device = Device(multiprocessors);
    Candidate candidate =
        c->a.dtype == kF32 ? WriteF32Mma(*c, parts, device) : WriteHalfMma(*c, {n, parts}, device);
    EXPECT_TRUE(candidate.Validate(signature).ok()) << candidate.Validate(signature).ToString();
    cases_.push_back({name, signature, std::move(candidate), rows::RandomInputs(signature)});
    return cases_.back();
  }

  // Compiles all cases as one library, and runs each with copies that are done as late as a kernel
  // allows, and as early.
  void Go() {
    const std::string prelude(rows::CudaPrelude());
    std::string code =
        "#include \"" CUDAFORGE_SOURCE_DIR "/tests/cpp/generators/mma_shim.h\"\n" + prelude;
    for (size_t i = 0; i < cases_.size(); ++i) {
      std::string text = cases_[i].candidate.source.code;
      if (cases_[i].signature.inputs[0].dtype == kF32)
        text = Without(std::move(text), "#include <cuda_fp16.h>\n");
      for (const std::string& part :
           {prelude, DeviceText({"device/async_copy.cuh"}), DeviceText({"device/matrices.cuh"}),
            DeviceText({"device/mma.cuh"}),
            std::string("extern __shared__ __align__(128) uint4 dynamic_shared[];")}) {
        text = Without(std::move(text), part);
      }
      for (const char* kernel : {"measure", "split", "product", "combine"})
        code += std::string("#define ") + kernel + " " + Symbol(i, kernel) + "\n";
      code += "namespace case" + std::to_string(i) + " {\n" + text + "}\n";
      for (const char* kernel : {"measure", "split", "product", "combine"})
        code += std::string("#undef ") + kernel + "\n";
    }
    const Result<TempDir> folder = TempDir::Create("mma_host");
    const std::string source = folder->path() + "/k.cc", library = folder->path() + "/k.so";
    ASSERT_TRUE(WriteFileAtomic(source, code).ok());
    const Result<ProcessResult> compiled =
        RunProcess({"c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off",
                    "-I" CUDAFORGE_SOURCE_DIR, "-o", library, source},
                   {.timeout_ms = 240'000, .join_errors = true});
    ASSERT_EQ(compiled->exit_code, 0) << compiled->output.substr(0, 4000);
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(handle, nullptr) << dlerror();
    launch_ = reinterpret_cast<Launch_>(dlsym(handle, "ShimLaunch"));
    set_grid_ = reinterpret_cast<SetGrid>(dlsym(handle, "ShimSetGrid"));
    const auto faults = reinterpret_cast<int (*)()>(dlsym(handle, "ShimFaults"));
    for (size_t i = 0; i < cases_.size(); ++i) {
      for (const bool late : {true, false}) {
        SCOPED_TRACE(cases_[i].name + (late ? ", late copies" : ", early copies"));
        std::vector<void*> kernels;
        for (const Launch& launch : cases_[i].candidate.plan.launches)
          kernels.push_back(dlsym(handle, Symbol(i, launch.kernel).c_str()));
        RunOne(cases_[i], kernels, late);
        EXPECT_EQ(faults(), 0) << "misaligned addresses or bank conflicts";
      }
    }
    dlclose(handle);
  }

 private:
  using Launch_ = int (*)(void (*)(), void**, int, int64_t, int);
  using SetGrid = void (*)(unsigned, unsigned, int);

  static std::string Symbol(size_t i, const std::string& kernel) {
    return "case" + std::to_string(i) + "_" + kernel;
  }

  void RunOne(const Case& c, const std::vector<void*>& kernels, bool late) {
    std::vector<GuardedBuffer> in, out, scratch;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const TensorSpec& spec = c.signature.inputs[i];
      in.emplace_back(static_cast<size_t>(spec.StorageBytes()));
      for (size_t e = 0; e < c.inputs[i].size(); ++e) {
        rows::Put(in[i].data() + static_cast<int64_t>(e) * DTypeSize(spec.dtype), spec.dtype,
                  c.inputs[i][e]);
      }
    }
    const auto add = [](int64_t bytes, std::vector<GuardedBuffer>& to) {
      to.emplace_back(static_cast<size_t>(bytes));
      memset(to.back().data(), 0x7b, static_cast<size_t>(bytes));
    };
    for (size_t o = 0; o < c.signature.outputs.size(); ++o)
      add(c.signature.output_spec(o).StorageBytes(), out);
    for (const ScratchBuffer& buffer : c.candidate.plan.scratch_bytes)
      add(buffer.bytes.Evaluate(c.signature).value(), scratch);
    for (size_t l = 0; l < kernels.size(); ++l) {
      ASSERT_NE(kernels[l], nullptr);
      const Launch& launch = c.candidate.plan.launches[l];
      std::vector<void*> args;
      for (const LaunchArg& arg : launch.args) {
        if (arg.kind == LaunchArg::Kind::kInt) {
          args.push_back(reinterpret_cast<void*>(arg.expr.Evaluate(c.signature).value()));
          continue;
        }
        std::vector<GuardedBuffer>& buffers = arg.kind == LaunchArg::Kind::kInput    ? in
                                              : arg.kind == LaunchArg::Kind::kOutput ? out
                                                                                     : scratch;
        args.push_back(buffers.at(static_cast<size_t>(arg.index)).data());
      }
      const auto value = [&](const IntExpr& expr) { return expr.Evaluate(c.signature).value(); };
      for (int64_t y = 0; y < value(launch.grid[1]); ++y) {
        set_grid_(static_cast<unsigned>(value(launch.grid[0])), static_cast<unsigned>(y), late);
        ASSERT_EQ(launch_(reinterpret_cast<void (*)()>(kernels[l]), args.data(),
                          static_cast<int>(args.size()), value(launch.grid[0]),
                          static_cast<int>(value(launch.block[0]))),
                  0)
            << "threads disagree on a barrier in " << launch.kernel;
      }
    }
    for (const GuardedBuffer& buffer : scratch) EXPECT_TRUE(buffer.Intact());
    for (const GuardedBuffer& buffer : out) EXPECT_TRUE(buffer.Intact());
    const Contraction x = *ReadContraction(c.signature);
    for (size_t product = 0; product < static_cast<size_t>(x.products()); ++product)
      Compare(c, x, product, out[product]);
  }

  static void Compare(const Case& c, const Contraction& x, size_t product,
                      const GuardedBuffer& out) {
    const DType type = c.signature.output_spec(0).dtype;
    const double rounding = type == DType::kBFloat16 ? 0x1p-8
                            : type == kF16           ? 0x1p-10
                            : c.result               ? 0x1p-24
                                                     : 0;
    const Memory& a = c.inputs[static_cast<size_t>(x.a.input)];
    const int right = product == 0 ? x.b.input : x.siblings[product - 1];
    const Memory& b = c.inputs[static_cast<size_t>(right)];
    for (int64_t e = 0; e < x.batch * x.m * x.n; ++e) {
      const int64_t matrix = e / (x.m * x.n), row = e / x.n % x.m, column = e % x.n;
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < x.k; ++k) {
        const double product =
            a[static_cast<size_t>(matrix * x.a.batch + row * x.a.row + k * x.a.step)].f *
            b[static_cast<size_t>(matrix * x.b.batch + column * x.b.row + k * x.b.step)].f;
        sum += product;
        magnitude += std::fabs(product);
      }
      const double want = c.result ? c.result(sum, product, row, column) : sum;
      const double got = rows::Get(out.data() + e * DTypeSize(type), type).f;
      // In float32 what is left out is 2^-22 of the products.
      const double bound =
          0x1p-21 * magnitude +
          (rounding > 0 ? 3 : 1) * rounding * (std::fabs(want) + (c.result ? std::fabs(sum) : 0)) +
          1e-30;
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << row << " " << column << " got " << got;
      } else {
        ASSERT_LE(std::fabs(got - want), bound) << product << " " << matrix << " " << row << " "
                                                << column << ": got " << got << ", want " << want;
      }
    }
  }

  std::deque<Case> cases_;
  Launch_ launch_ = nullptr;
  SetGrid set_grid_ = nullptr;
};

TensorSpec Columns(int64_t rows, int64_t columns, DType dtype) {
  return Spec({rows, columns}, dtype, {1, rows});
}

TEST_F(MmaHost, MultipliesInFloat32) {
  Add("one tile", ProductOf(Spec({128, 256}), Columns(256, 128, kF32)), 1, 1);
  Add("edges, other layouts", ProductOf(Columns(140, 100, kF32), Spec({100, 77})), 1, 1);
  Add("a batch that shares A", ProductOf(Spec({2, 70, 192}, kF32, {0, 192, 1}), Spec({2, 192, 64})),
      1, 1);
  Add("parts", ProductOf(Spec({100, 640}), Spec({640, 130})), 3, 3);
  Case& sparse = Add("short sums of few elements", ProductOf(Spec({70, 40}), Spec({40, 66})), 1, 1);
  for (size_t i = 0; i < sparse.inputs[0].size(); ++i) sparse.inputs[0][i].f *= i % 41 < 3;
  Case& layer = Add("a layer", LayerOf(64, 136, 128, kF32), 1, 4);
  layer.result = [&](double sum, size_t, int64_t row, int64_t column) {
    return LayerResult(layer, sum, row, column);
  };
  Go();
}

// Several products of one left operand, with a bias each.
TEST_F(MmaHost, MultipliesInFloat32Apart) {
  for (const int64_t parts : {1, 2}) {
    Case& c = Add(std::to_string(parts) + " parts", ProductsApart(140, 100, 192, 3), parts, 4);
    c.result = [&](double sum, size_t product, int64_t, int64_t column) {
      return sum + c.inputs[2 * product + 2][static_cast<size_t>(column)].f;
    };
    for (size_t k = 0; k < 192; ++k) {
      c.inputs[3][7 * 192 + k].f *= k < 40;                     // a column with few elements
      c.inputs[0][50 * 192 + k].f *= k % 2 == 0 ? 1 : 0x1p-37;  // tiny ones
      c.inputs[5][11 * 192 + k].f *= k % 2 == 0 ? 0 : 1;        // with them alone
      c.inputs[6][11].f = 0;
    }
  }
  Go();
}

// Rows that are not split, sums that are not sure: a block goes on with other tiles after them.
TEST_F(MmaHost, ComputesInFloat32WhatASplitWouldSpoil) {
  for (const int64_t parts : {1, 2}) {
    Case& c = Add(std::to_string(parts) + " parts", ProductOf(Spec({300, 256}), Spec({256, 128})),
                  parts, parts);
    for (size_t k = 0; k < 256; ++k) {
      c.inputs[0][5 * 256 + k].f *= k < 40;                      // few elements
      c.inputs[0][150 * 256 + k].f *= k % 2 == 0 ? 1 : 0x1p-37;  // tiny ones, in the next tile
      c.inputs[1][k * 128 + 7].f *= k % 2 == 0 ? 0 : 1;          // with them alone
    }
    c.inputs[0][299 * 256 + 3].f = NAN;
  }
  Go();
}

TEST_F(MmaHost, MultipliesHalvesInEveryLayout) {
  for (const int64_t n : {64, 128, 256}) {
    for (const bool a_holds_k : {false, true}) {
      for (const bool b_holds_k : {false, true}) {
        const DType dtype = a_holds_k ? kF16 : DType::kBFloat16;
        const TensorSpec a = a_holds_k ? Spec({136, 72}, dtype) : Columns(136, 72, dtype);
        const TensorSpec b = b_holds_k ? Columns(72, n + 8, dtype) : Spec({72, n + 8}, dtype);
        Add(std::to_string(n) + " columns, " + (a_holds_k ? "rows" : "columns") + " of A, " +
                (b_holds_k ? "columns" : "rows") + " of B",
            ProductOf(a, b), 1, 1, n);
      }
    }
  }
  Go();
}

TEST_F(MmaHost, MultipliesHalvesOfManyKinds) {
  Add("whole tiles", ProductOf(Spec({128, 256}, kF16), Columns(256, 128, kF16)), 1, 1);
  Add("parts of long sums",
      ProductOf(Spec({96, 1024}, DType::kBFloat16), Spec({1024, 136}, DType::kBFloat16)), 3, 1);
  Add("parts, an odd number of columns",
      ProductOf(Spec({72, 256}, kF16), Spec({256, 65}, kF16, {72, 1})), 2, 2, 64);
  Add("an even number of columns, gaps between rows",
      ProductOf(Spec({72, 70}, DType::kBFloat16, {80, 1}),
                Spec({70, 66}, DType::kBFloat16, {72, 1})),
      1, 1, 64);
  Add("copies of 4 and 8 bytes", ProductOf(Spec({136, 74}, kF16), Spec({74, 68}, kF16)), 1, 1);
  Add("elements", ProductOf(Spec({136, 71}, kF16), Spec({71, 67}, kF16)), 1, 1);
  Add("elements of other layouts",
      ProductOf(Columns(67, 71, DType::kBFloat16), Columns(71, 264, DType::kBFloat16)), 1, 1, 256);
  Add("copies of 4 bytes, whole tiles",
      ProductOf(Columns(64, 128, kF16), Spec({128, 64}, kF16, {66, 1})), 1, 1, 64);
  Add("a batch", ProductOf(Spec({3, 64, 64}, kF16), Spec({3, 64, 64}, kF16, {4096, 1, 64})), 1, 1);
  for (const int64_t n : {64, 256}) {
    Case& layer = Add("a layer", LayerOf(72, 264, 128, n == 64 ? kF16 : DType::kBFloat16), 1, 1, n);
    layer.result = [&](double sum, size_t, int64_t row, int64_t column) {
      return LayerResult(layer, sum, row, column);
    };
  }
  Go();
}

}  // namespace
}  // namespace cudaforge::tiles
