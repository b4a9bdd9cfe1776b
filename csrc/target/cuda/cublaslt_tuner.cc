#include "target/cuda/cublaslt_tuner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "target/cuda/cublaslt_executable.h"

namespace cudaforge {
namespace {

constexpr double kFirstSeconds = 0.4;   // for the first times of variants
constexpr double kRoundsSeconds = 0.4;  // for the further times of the fastest
constexpr int kRounds = 7;
constexpr double kHopeless = 1.1;  // times the best: timed no more
constexpr size_t kVariants = 512;
constexpr size_t kPatternBytes = size_t{1} << 20;

// Numbers of both signs from 0.5 to 1: a product of constants takes less power, and so less time.
std::vector<uint32_t> Pattern(DType dtype) {
  const uint32_t one = dtype == DType::kBFloat16  ? 0x3f003f00u
                       : dtype == DType::kFloat16 ? 0x38003800u
                                                  : 0x3f000000u;
  const uint32_t random = dtype == DType::kBFloat16  ? 0x807f807fu
                          : dtype == DType::kFloat16 ? 0x83ff83ffu
                                                     : 0x807fffffu;
  SplitMix bits(1);
  std::vector<uint32_t> words(kPatternBytes / sizeof(uint32_t));
  for (uint32_t& word : words) word = one | (static_cast<uint32_t>(bits.Next()) & random);
  return words;
}

int64_t BytesOf(const LibraryProduct& product, const LibraryMatrix& matrix, int64_t rows,
                int64_t columns) {
  const int64_t inside = (rows - 1) * matrix.row + (columns - 1) * matrix.column + 1;
  return ((product.batch - 1) * matrix.batch + inside) * DTypeSize(product.dtype);
}

}  // namespace

double CublasLtTuner::Timed::median() const {
  if (ns.empty()) return std::numeric_limits<double>::infinity();
  std::vector<double> sorted = ns;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

// Device memory for the operands of one product.
class CublasLtTuner::Operands {
 public:
  explicit Operands(CudaContextPtr context) : context_(std::move(context)) {}
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;
  ~Operands() {
    for (const cu::DevicePtr data : owned_) context_->api().MemFree(data);
  }

  // kNoMemory: too little is free.
  Status Allocate(const LibraryProduct& p, int64_t workspace_bytes) {
    pattern_ = Pattern(p.dtype);
    CF_ASSIGN_OR_RETURN(buffers.a, Filled(BytesOf(p, p.a, p.m, p.k)));
    CF_ASSIGN_OR_RETURN(buffers.b, Filled(BytesOf(p, p.b, p.k, p.n)));
    if (p.c.has_value()) {
      CF_ASSIGN_OR_RETURN(buffers.c, Filled(BytesOf(p, *p.c, p.m, p.n)));
    }
    if (p.bias.has_value()) {
      CF_ASSIGN_OR_RETURN(buffers.bias, Filled(p.n * DTypeSize(p.dtype)));
    }
    CF_ASSIGN_OR_RETURN(buffers.d, Empty(BytesOf(p, p.d, p.m, p.n)));
    CF_ASSIGN_OR_RETURN(buffers.workspace, Empty(workspace_bytes));
    return Status::Ok();
  }

  ProductBuffers buffers;

 private:
  Result<void*> Empty(int64_t bytes) {
    cu::DevicePtr data = 0;
    CF_RETURN_IF_ERROR(context_->Check(
        context_->api().MemAlloc(&data, static_cast<size_t>(std::max(bytes, int64_t{1}))),
        "cuMemAlloc"));
    owned_.push_back(data);
    return reinterpret_cast<void*>(data);
  }

  Result<void*> Filled(int64_t bytes) {
    CF_ASSIGN_OR_RETURN(void* const data, Empty(bytes));
    const auto at = reinterpret_cast<cu::DevicePtr>(data);
    const auto size = static_cast<size_t>(bytes);
    size_t done = std::min(size, kPatternBytes);
    CF_RETURN_IF_ERROR(
        context_->Check(context_->api().MemcpyHtoD(at, pattern_.data(), done), "cuMemcpyHtoD"));
    for (; done < size; done *= 2) {
      const size_t part = std::min(done, size - done);
      CF_RETURN_IF_ERROR(context_->Check(
          context_->api().MemcpyDtoDAsync(at + done, at, part, nullptr), "cuMemcpyDtoDAsync"));
    }
    return data;
  }

  const CudaContextPtr context_;
  std::vector<uint32_t> pattern_;
  std::vector<cu::DevicePtr> owned_;
};

CompileResult CublasLtTuner::Compile(const std::string& code, CudaTimer& timer, cu::Stream stream) {
  const Result<LibraryProduct> product = LibraryProduct::Parse(code);
  if (!product.ok()) return CompileResult::Failure(product.status().message());
  Result<CompileResult> result = Choose(*product, timer, stream);
  if (result.ok()) return *std::move(result);
  return CompileResult::Failure(result.status().message());
}

Result<CompileResult> CublasLtTuner::Choose(const LibraryProduct& product, CudaTimer& timer,
                                            cu::Stream stream) {
  CF_ASSIGN_OR_RETURN(const CublasLt* const library, CublasLt::For(*context_, search_paths_));
  LibraryProduct first = product;
  first.place = 0;
  std::string name = CanonicalJson(first.ToJson());
  if (ranked_for_ != name) {
    ranked_for_.clear();
    CF_ASSIGN_OR_RETURN(const CublasLtProduct ready, CublasLtProduct::Create(*library, product));
    CF_RETURN_IF_ERROR(Rank(ready, product, timer, stream));
    ranked_for_ = std::move(name);
  }
  const auto place = static_cast<size_t>(product.place);
  if (place >= ranked_.size()) {
    return Status::NotFound("cuBLASLt has only " + std::to_string(ranked_.size()) +
                            " algorithms for this product");
  }
  const Timed& chosen = ranked_[place];
  CompileResult result;
  result.ok = true;
  result.binary = CublasLtBinary{.version = static_cast<int64_t>(library->api.GetVersion()),
                                 .algorithm = chosen.heuristic.algorithm}
                      .Encode();
  Json facts = {{"rank", chosen.rank},
                {"algorithms", tried_},
                {"workspace_bytes", chosen.heuristic.workspace_bytes}};
  if (chosen.rank < 0) facts["rank"] = nullptr;
  if (!chosen.ns.empty()) facts["ns"] = chosen.median();
  if (first_ns_ > 0) facts["first_ns"] = first_ns_;
  result.resources["cublasLtMatmul"] = std::move(facts);
  return result;
}

Status CublasLtTuner::Rank(const CublasLtProduct& ready, const LibraryProduct& product,
                           CudaTimer& timer, cu::Stream stream) {
  ranked_.clear();
  first_ns_ = 0;
  CF_ASSIGN_OR_RETURN(const std::vector<lt::Heuristic> found,
                      ready.Algorithms(LibraryProduct::kMaxPlace + 1));
  for (const lt::Heuristic& one : found)
    ranked_.push_back({.heuristic = one, .rank = static_cast<int>(ranked_.size()), .ns = {}});
  tried_ = ranked_.size();
  std::vector<Timed> variants;
  for (const lt::Heuristic& one : ready.Variants(found, kVariants))
    variants.push_back({.heuristic = one, .rank = -1, .ns = {}});
  int64_t workspace_bytes = 0;
  for (const std::vector<Timed>* const list : {&ranked_, &variants}) {
    for (const Timed& one : *list) {
      const auto bytes = static_cast<int64_t>(one.heuristic.workspace_bytes);
      workspace_bytes = std::max(workspace_bytes, bytes);
    }
  }
  Operands operands(context_);
  const Status allocated = operands.Allocate(product, workspace_bytes);
  if (allocated.code() == StatusCode::kNoMemory) return Status::Ok();
  CF_RETURN_IF_ERROR(allocated);
  const Status timed = TimeAll(ready, operands, std::move(variants), timer, stream);
  if (!timed.ok()) ranked_.clear();
  return timed;
}

Status CublasLtTuner::TimeAll(const CublasLtProduct& ready, const Operands& operands,
                              std::vector<Timed> variants, CudaTimer& timer, cu::Stream stream) {
  const auto run = [&](const Timed& one) {
    return ready.Run(operands.buffers, one.heuristic.algorithm,
                     static_cast<int64_t>(one.heuristic.workspace_bytes), stream);
  };
  CF_RETURN_IF_ERROR(context_->Check(context_->api().ContextSynchronize(), "filling operands"));
  // Runs it once without timing, which loads the kernel. What refuses to run is dropped.
  const auto time_first = [&](Timed& one) -> Status {
    if (!run(one).ok()) return Status::Ok();
    CF_ASSIGN_OR_RETURN(const double ns, timer.Time([&] { return run(one); }));
    one.ns.push_back(ns);
    return Status::Ok();
  };
  for (Timed& one : ranked_) CF_RETURN_IF_ERROR(time_first(one));
  const double end_of_first = SteadySeconds() + kFirstSeconds;
  for (Timed& one : variants) {
    if (SteadySeconds() > end_of_first) break;
    CF_RETURN_IF_ERROR(time_first(one));
    ranked_.push_back(std::move(one));
  }
  std::erase_if(ranked_, [](const Timed& one) { return one.ns.empty(); });
  tried_ = ranked_.size();
  for (const Timed& one : ranked_) {
    if (one.rank == 0) first_ns_ = one.ns[0];
  }
  std::ranges::stable_sort(ranked_, {}, &Timed::median);
  ranked_.resize(std::min(ranked_.size(), size_t{LibraryProduct::kMaxPlace} + 1));
  const double end = SteadySeconds() + kRoundsSeconds;
  for (int round = 1; round < kRounds && SteadySeconds() < end; ++round) {
    for (Timed& one : ranked_) {
      if (one.median() > kHopeless * ranked_[0].median()) continue;
      CF_ASSIGN_OR_RETURN(const double ns, timer.Time([&] { return run(one); }));
      one.ns.push_back(ns);
    }
  }
  std::ranges::stable_sort(ranked_, {}, &Timed::median);
  return Status::Ok();
}

}  // namespace cudaforge
