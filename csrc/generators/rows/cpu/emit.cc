#include "generators/rows/cpu/prelude.h"
#include "generators/rows/cpu/stage.h"

namespace cudaforge::rows {
namespace {

// Counts loads and stores that are contiguous along the last outer (column) and the last inner
// (row) dimension.
struct Contiguity {
  int outer = 0;
  int inner = 0;
};

Contiguity CountContiguity(const Stage& stage) {
  Contiguity count;
  auto add = [&](const Access& access) {
    int64_t outer = 0, inner = 0;
    for (size_t d = 0; d < access.dims.size(); ++d) {
      const DimIndex& dim = access.dims[d];
      if (!stage.outer.empty() && !dim.outer_coef.empty())
        outer += dim.outer_coef.back() * access.strides[d];
      if (!stage.inner.empty() && !dim.inner_coef.empty())
        inner += dim.inner_coef.back() * access.strides[d];
    }
    // A stride of 2 is still sequential in memory. Bounded windows have their stride as step.
    if (outer >= 1 && outer <= 2) ++count.outer;
    if (inner == 1) ++count.inner;
  };
  for (const Value& v : stage.values) {
    if (v.kind == Value::Kind::kLoad && v.space == Space::kElement) add(v.access);
  }
  for (const Store& s : stage.stores) {
    if (stage.values[static_cast<size_t>(s.value)].space == Space::kElement) add(s.access);
  }
  return count;
}

// kColumn uses 32-bit indices, and needs columns.
bool ColumnsPossible(const CpuStage& stage) {
  return !stage.stage().outer.empty() && stage.row_length() < INT32_MAX;
}

}  // namespace

std::vector<Schedule> CpuSchedules(const Stage& stage, const DeviceArch&) {
  const CpuStage cpu(stage, "k");
  const Contiguity contiguity = CountContiguity(cpu.stage());
  std::vector<Schedule> rows, columns;
  if (!BufferedValues(cpu).empty()) rows.push_back({.mapping = Mapping::kBuffer});
  rows.push_back({.mapping = Mapping::kRow});
  if (ColumnsPossible(cpu)) {
    const int64_t last = cpu.stage().outer.back();
    for (int vector : {256, 64, 512}) {
      if (vector != 64 && vector / 2 >= last) continue;
      for (int items : {4, 1}) {
        if (items > 1 && cpu.stage().inner.back() < items) continue;
        columns.push_back({.mapping = Mapping::kColumn, .vector = vector, .items = items});
      }
    }
  }
  const bool column_first = !columns.empty() && (contiguity.outer > contiguity.inner ||
                                                 (contiguity.inner == 0 && contiguity.outer > 0) ||
                                                 (cpu.row_length() <= 16 && cpu.rows() >= 64));
  std::vector<Schedule> result;
  if (column_first) {
    result = std::move(columns);
    result.insert(result.end(), rows.begin(), rows.end());
  } else {
    result = std::move(rows);
    // Without contiguous columns, rows are faster, except very short ones.
    if (contiguity.outer > 0 || cpu.row_length() <= 64) {
      result.insert(result.end(), columns.begin(), columns.end());
    }
  }
  if (result.size() > 8) result.resize(8);
  return result;
}

Result<Candidate> EmitCpu(const Program& program, const OpSignature& signature,
                          const std::vector<Schedule>& schedules) {
  CF_CHECK(schedules.size() == program.stages.size()) << "one schedule per stage";
  CF_CHECK(signature.device == DeviceType::kCpu) << "a CPU kernel for another device";
  Candidate candidate;
  candidate.author = "generator:rows";
  candidate.source.language = Language::kCpu;
  candidate.source.code = CpuPrelude();
  Json stages = Json::array();
  for (int64_t bytes : program.scratch_bytes) candidate.plan.scratch_bytes.emplace_back(bytes);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const CpuStage stage(program.stages[s], "stage" + std::to_string(s));
    const Schedule& schedule = schedules[s];
    const bool column = schedule.mapping == Mapping::kColumn;
    if (!column && schedule.mapping != Mapping::kRow && schedule.mapping != Mapping::kBuffer) {
      return Status::InvalidArgument(std::string("no CPU mapping: ") +
                                     MappingName(schedule.mapping));
    }
    if (!program.stages[s].run_sums.empty()) {
      return Status::Unsupported("stage " + std::to_string(s) + " has sums over runs of rows");
    }
    if (column && !ColumnsPossible(stage)) {
      return Status::Unsupported("stage " + std::to_string(s) + " has no columns");
    }
    CpuKernel kernel = column ? EmitCpuColumns(stage, schedule) : EmitCpuRows(stage, schedule);
    candidate.source.code += "\n" + kernel.text;
    candidate.plan.launches.push_back(std::move(kernel.launch));
    stages.push_back(schedule.ToJson(DeviceType::kCpu));
  }
  candidate.params = {{"stages", std::move(stages)}};
  return candidate;
}

}  // namespace cudaforge::rows
