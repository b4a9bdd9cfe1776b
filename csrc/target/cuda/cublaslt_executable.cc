#include "target/cuda/cublaslt_executable.h"

#include <iterator>
#include <utility>

#include "target/cuda/cublaslt_product.h"
#include "target/launch_args.h"

namespace cudaforge {
namespace {

constexpr const char* kLibrary = "cublasLt";
constexpr size_t kWords = std::size(lt::Algorithm{}.data);

class CublasLtExecutable : public Executable {
 public:
  CublasLtExecutable(CudaContextPtr context, const CublasLtProduct& product,
                     const LibraryProduct& places, const lt::Algorithm& algorithm,
                     int64_t workspace_bytes)
      : context_(std::move(context)),
        product_(product),
        places_(places),
        algorithm_(algorithm),
        workspace_bytes_(workspace_bytes) {
    using Kind = LaunchArg::Kind;
    const auto input = [&](int index) {
      needs_.Include(BufferRef{Kind::kInput, static_cast<size_t>(index)});
    };
    input(places_.a.index);
    input(places_.b.index);
    if (places_.c.has_value()) input(places_.c->index);
    if (places_.bias.has_value()) input(*places_.bias);
    needs_.Include(BufferRef{Kind::kOutput, static_cast<size_t>(places_.d.index)});
    if (workspace_bytes_ > 0) scratch_bytes_ = {workspace_bytes_};
    needs_.IncludeScratch(scratch_bytes_.size());
  }

  Status Launch(std::span<void* const> inputs, std::span<void* const> outputs,
                std::span<void* const> scratch, const LaunchContext& context) const override {
    CF_RETURN_IF_ERROR(needs_.Check(inputs, outputs, scratch));
    const auto input = [&](int index) { return inputs[static_cast<size_t>(index)]; };
    ProductBuffers buffers;
    buffers.a = input(places_.a.index);
    buffers.b = input(places_.b.index);
    if (places_.c.has_value()) buffers.c = input(places_.c->index);
    if (places_.bias.has_value()) buffers.bias = input(*places_.bias);
    buffers.d = outputs[static_cast<size_t>(places_.d.index)];
    if (workspace_bytes_ > 0) buffers.workspace = scratch[0];
    return product_.Run(buffers, algorithm_, workspace_bytes_,
                        static_cast<cu::Stream>(context.stream));
  }

 private:
  const CudaContextPtr context_;  // kept alive
  const CublasLtProduct product_;
  const LibraryProduct places_;
  const lt::Algorithm algorithm_;
  const int64_t workspace_bytes_;
  BufferNeeds needs_;
};

}  // namespace

std::string CublasLtBinary::Encode() const {
  Json words = Json::array();
  for (const uint64_t word : algorithm.data) words.push_back(word);
  return CanonicalJson({{"library", kLibrary}, {"version", version}, {"algorithm", words}});
}

Result<CublasLtBinary> CublasLtBinary::Decode(const std::string& bytes) {
  const auto bad = [] { return Status::Corruption("no algorithm of cuBLASLt"); };
  const Result<Json> json = ParseJson(bytes, {.max_bytes = 1024, .max_depth = 3});
  if (!json.ok() || MemberOrNull(*json, "library") != kLibrary) return bad();
  const Json& words = MemberOrNull(*json, "algorithm");
  const Result<int64_t> version = JsonInt(*json, "version");
  if (!version.ok() || !words.is_array() || words.size() != kWords) return bad();
  CublasLtBinary binary;
  binary.version = *version;
  for (size_t i = 0; i < kWords; ++i) {
    if (!words[i].is_number_unsigned()) return bad();
    binary.algorithm.data[i] = words[i].get<uint64_t>();
  }
  return binary;
}

Result<std::unique_ptr<Executable>> LoadCublasLt(CudaContextPtr context, const std::string& binary,
                                                 const Candidate& candidate,
                                                 const OpSignature& signature,
                                                 const std::vector<std::string>& search_paths) {
  const CurrentContextKeeper keeper(context->api());
  CF_ASSIGN_OR_RETURN(const LibraryProduct product, LibraryProduct::Parse(candidate.source.code));
  CF_RETURN_IF_ERROR(product.Validate(signature));
  CF_ASSIGN_OR_RETURN(const CublasLtBinary stored, CublasLtBinary::Decode(binary));
  CF_ASSIGN_OR_RETURN(const CublasLt* const library, CublasLt::For(*context, search_paths));
  const auto version = static_cast<int64_t>(library->api.GetVersion());
  if (stored.version != version) {
    return Status::NotFound("the algorithm is for cuBLASLt " + std::to_string(stored.version) +
                            ", and this is " + std::to_string(version));
  }
  CF_ASSIGN_OR_RETURN(const CublasLtProduct ready, CublasLtProduct::Create(*library, product));
  const Result<int64_t> workspace = ready.Check(stored.algorithm);
  if (!workspace.ok()) return Status::Corruption(workspace.status().message());
  if (*workspace > product.workspace_bytes) {
    return Status::Corruption("the algorithm needs more workspace than the product allows");
  }
  return std::unique_ptr<Executable>(std::make_unique<CublasLtExecutable>(
      std::move(context), ready, product, stored.algorithm, *workspace));
}

}  // namespace cudaforge
