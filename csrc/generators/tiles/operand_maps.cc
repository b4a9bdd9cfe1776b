#include "generators/tiles/operand_maps.h"

#include <string>

#include "base/text.h"
#include "generators/tiles/units.h"

namespace cudaforge::tiles {
namespace {

constexpr int64_t kBoxBytes = 128;  // of a row, as the swizzle
constexpr int64_t kMapBytes = 16;   // strides of tensor maps are multiples of it
constexpr int64_t kBoxK = 64;

}  // namespace

Status CheckMap(const Operand& operand, const char* what) {
  const int64_t size = DTypeSize(operand.dtype);
  if (operand.lead() * size % kMapBytes == 0 && operand.batch * size % kMapBytes == 0 &&
      operand.alignment % kMapBytes == 0)
    return Status::Ok();
  return Status::Unsupported(Cat("no product kernel: rows of ", what, " do not begin at 16 bytes"));
}

TensorMap MapOf(int input, const Operand& operand, int64_t all_rows, int64_t k, int64_t batch,
                int64_t rows) {
  const int64_t size = DTypeSize(operand.dtype), lead = operand.lead();
  const int64_t matrix = operand.batch == 0 ? lead : operand.batch;  // any, if there is one
  TensorMap map;
  map.of = ArgAt(LaunchArg::Kind::kInput, input);
  map.dtype = std::string(DTypeName(operand.dtype));
  const int64_t matrices = operand.batch == 0 ? 1 : batch;
  if (operand.rows_hold_k()) {
    map.sizes = {k, all_rows, matrices};
    map.box = {kBoxBytes / size, rows, 1};
  } else {
    map.sizes = {all_rows, k, matrices};
    map.box = {kBoxBytes / size, kBoxK, 1};
  }
  map.strides = {lead * size, matrix * size};
  map.swizzle = static_cast<int>(kBoxBytes);
  return map;
}

}  // namespace cudaforge::tiles
