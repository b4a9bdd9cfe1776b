#include "target/cuda/cublaslt_product.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace cudaforge {
namespace {

constexpr uint16_t kClusters[] = {lt::kClusterAuto, lt::kCluster1x1, lt::kCluster2x1,
                                  lt::kCluster1x2,  lt::kCluster2x2, lt::kCluster4x1,
                                  lt::kCluster1x4};

int TypeOf(DType dtype) {
  if (dtype == DType::kBFloat16) return lt::kBFloat16;
  return dtype == DType::kFloat16 ? lt::kFloat16 : lt::kFloat32;
}

}  // namespace

Result<const CublasLt*> CublasLt::For(const CudaContext& context,
                                      const std::vector<std::string>& search_paths) {
  static auto* const mutex = new std::mutex;
  static auto* const made = new std::map<cu::Device, const CublasLt*>;
  CF_RETURN_IF_ERROR(context.MakeCurrent());
  const std::lock_guard lock(*mutex);
  if (const auto found = made->find(context.device()); found != made->end()) return found->second;
  CublasLt library;
  CF_ASSIGN_OR_RETURN(library.api, lt::Api::Open(search_paths));
  if (const Status created = library.api.Check(library.api.Create(&library.handle), "cuBLASLt");
      !created.ok()) {
    return Status::Unavailable(created.message());
  }
  return made->emplace(context.device(), new CublasLt(std::move(library))).first->second;
}

Result<CublasLtProduct> CublasLtProduct::Create(const CublasLt& library,
                                                const LibraryProduct& product) {
  CublasLtProduct made(library, product);
  CF_RETURN_IF_ERROR(made.Init());
  return made;
}

Status CublasLtProduct::InitLayout(const LibraryMatrix& matrix, uint64_t rows, uint64_t columns,
                                   lt::Layout* layout) const {
  const lt::Api& api = library_.api;
  // Contiguous rows are the columns of the transpose.
  if (matrix.column == 1) std::swap(rows, columns);
  CF_RETURN_IF_ERROR(api.Check(
      api.LayoutInit(layout, sizeof(*layout), TypeOf(product_.dtype), rows, columns, matrix.lead()),
      "cublasLtMatrixLayoutInit"));
  const auto batch = static_cast<int32_t>(product_.batch);
  if (batch == 1) return Status::Ok();
  CF_RETURN_IF_ERROR(api.Check(api.LayoutSet(layout, lt::kBatchCount, &batch, sizeof(batch)),
                               "the layout's batch"));
  return api.Check(api.LayoutSet(layout, lt::kBatchStride, &matrix.batch, sizeof(matrix.batch)),
                   "the layout's stride of a batch");
}

Status CublasLtProduct::Init() {
  const lt::Api& api = library_.api;
  const LibraryProduct& p = product_;
  alpha_ = static_cast<float>(p.alpha);
  beta_ = static_cast<float>(p.beta);
  const auto m = static_cast<uint64_t>(p.m), n = static_cast<uint64_t>(p.n),
             k = static_cast<uint64_t>(p.k);
  CF_RETURN_IF_ERROR(InitLayout(p.b, k, n, &first_));
  CF_RETURN_IF_ERROR(InitLayout(p.a, m, k, &second_));
  CF_RETURN_IF_ERROR(InitLayout(p.d, m, n, &d_));
  c_ = d_;
  if (p.c.has_value()) CF_RETURN_IF_ERROR(InitLayout(*p.c, m, n, &c_));
  CF_RETURN_IF_ERROR(
      api.Check(api.DescriptionInit(&description_, sizeof(description_),
                                    p.tf32 ? lt::kComputeTf32 : lt::kComputeFloat32, lt::kFloat32),
                "cublasLtMatmulDescInit"));
  const auto set = [&](int attribute, const auto& value) {
    return api.Check(api.DescriptionSet(&description_, attribute, &value, sizeof(value)),
                     "cublasLtMatmulDescSetAttribute");
  };
  if (p.b.column != 1) CF_RETURN_IF_ERROR(set(lt::kTransA, lt::kTransposed));
  if (p.a.column != 1) CF_RETURN_IF_ERROR(set(lt::kTransB, lt::kTransposed));
  CF_RETURN_IF_ERROR(
      set(lt::kEpilogue, p.bias.has_value() ? lt::kEpilogueBias : lt::kEpilogueNone));
  if (!p.bias.has_value()) return Status::Ok();
  // An address with the alignment of every bias, for the choice of algorithms.
  return SetBias(reinterpret_cast<const void*>(uintptr_t{16}), &description_);
}

Status CublasLtProduct::SetBias(const void* bias, lt::Description* description) const {
  const auto address = reinterpret_cast<uintptr_t>(bias);
  return library_.api.Check(
      library_.api.DescriptionSet(description, lt::kBiasPointer, &address, sizeof(address)),
      "the pointer of the bias");
}

Result<std::vector<lt::Heuristic>> CublasLtProduct::Algorithms(int most) const {
  const lt::Api& api = library_.api;
  lt::Preference preference = {};
  CF_RETURN_IF_ERROR(api.Check(api.PreferenceInit(&preference, sizeof(preference)),
                               "cublasLtMatmulPreferenceInit"));
  const auto set = [&](int attribute, auto value) {
    return api.Check(api.PreferenceSet(&preference, attribute, &value, sizeof(value)),
                     "cublasLtMatmulPreferenceSetAttribute");
  };
  const auto alignment = [&](int attribute, const LibraryMatrix& matrix) {
    return set(attribute, static_cast<uint32_t>(matrix.alignment));
  };
  CF_RETURN_IF_ERROR(set(lt::kMaxWorkspace, static_cast<uint64_t>(product_.workspace_bytes)));
  CF_RETURN_IF_ERROR(set(lt::kReductionSchemes, lt::kReduceInComputeType));
  CF_RETURN_IF_ERROR(alignment(lt::kAlignmentA, product_.b));
  CF_RETURN_IF_ERROR(alignment(lt::kAlignmentB, product_.a));
  CF_RETURN_IF_ERROR(alignment(lt::kAlignmentC, product_.c.value_or(product_.d)));
  CF_RETURN_IF_ERROR(alignment(lt::kAlignmentD, product_.d));
  std::vector<lt::Heuristic> found(static_cast<size_t>(most));
  int count = 0;
  const lt::Result result = api.GetHeuristic(library_.handle, &description_, &first_, &second_, &c_,
                                             &d_, &preference, most, found.data(), &count);
  found.resize(result == 0 ? static_cast<size_t>(count) : 0);
  std::erase_if(found, [](const lt::Heuristic& one) { return one.state != 0; });
  if (!found.empty()) return found;
  return Status::Unsupported("cuBLASLt has no algorithm for this product: " +
                             api.Check(result, "cublasLtMatmulAlgoGetHeuristic").message());
}

std::vector<lt::Heuristic> CublasLtProduct::Variants(std::span<const lt::Heuristic> algorithms,
                                                     size_t most) const {
  const lt::Api& api = library_.api;
  const auto tile_of = [&](const lt::Algorithm& algorithm) {
    uint32_t tile = 0;
    size_t written = 0;
    return api.AlgorithmGet(&algorithm, lt::kTile, &tile, sizeof(tile), &written) == 0 ? tile : 0;
  };
  std::vector<uint32_t> tiles;
  std::set<std::vector<uint64_t>> known;
  const auto is_new = [&](const lt::Algorithm& algorithm) {
    return known.insert({std::begin(algorithm.data), std::end(algorithm.data)}).second;
  };
  for (const lt::Heuristic& one : algorithms) {
    is_new(one.algorithm);
    const uint32_t tile = tile_of(one.algorithm);
    if (std::ranges::find(tiles, tile) == tiles.end()) tiles.push_back(tile);
  }
  std::vector<lt::Heuristic> found;
  const auto add = [&](lt::Algorithm algorithm, uint32_t tile, uint16_t cluster, uint32_t order) {
    const auto set = [&](int attribute, const auto& value) {
      return api.AlgorithmSet(&algorithm, attribute, &value, sizeof(value)) == 0;
    };
    if (!set(lt::kTile, tile) || !set(lt::kCluster, cluster) || !set(lt::kSwizzling, order)) return;
    if (!is_new(algorithm)) return;
    const Result<int64_t> workspace = Check(algorithm);
    if (!workspace.ok() || *workspace > product_.workspace_bytes) return;
    found.push_back({.algorithm = algorithm,
                     .workspace_bytes = static_cast<size_t>(*workspace),
                     .state = 0,
                     .waves = 0,
                     .reserved = {}});
  };
  for (const lt::Heuristic& one : algorithms) {
    std::ranges::stable_partition(
        tiles, [tile = tile_of(one.algorithm)](uint32_t t) { return t == tile; });
    for (const uint32_t tile : tiles) {
      for (const uint16_t cluster : kClusters) {
        for (const uint32_t order : {0u, 1u}) {
          if (found.size() == most) return found;
          add(one.algorithm, tile, cluster, order);
        }
      }
    }
  }
  return found;
}

Result<int64_t> CublasLtProduct::Check(const lt::Algorithm& algorithm) const {
  const lt::Api& api = library_.api;
  lt::Heuristic result = {};
  CF_RETURN_IF_ERROR(api.Check(api.AlgorithmCheck(library_.handle, &description_, &first_, &second_,
                                                  &c_, &d_, &algorithm, &result),
                               "cublasLtMatmulAlgoCheck"));
  return static_cast<int64_t>(result.workspace_bytes);
}

Status CublasLtProduct::Run(const ProductBuffers& buffers, const lt::Algorithm& algorithm,
                            int64_t workspace_bytes, cu::Stream stream) const {
  const lt::Api& api = library_.api;
  lt::Description with_bias;
  const lt::Description* description = &description_;
  if (product_.bias.has_value()) {
    with_bias = description_;
    CF_RETURN_IF_ERROR(SetBias(buffers.bias, &with_bias));
    description = &with_bias;
  }
  const void* const c = product_.c.has_value() ? buffers.c : buffers.d;
  return api.Check(api.Matmul(library_.handle, description, &alpha_, buffers.b, &first_, buffers.a,
                              &second_, &beta_, c, &c_, buffers.d, &d_, &algorithm,
                              buffers.workspace, static_cast<size_t>(workspace_bytes), stream),
                   "cublasLtMatmul");
}

}  // namespace cudaforge
