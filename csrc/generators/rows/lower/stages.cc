#include "generators/rows/lower/stages.h"

#include <algorithm>
#include <map>
#include <optional>

#include "generators/rows/lower/emitter.h"
#include "generators/rows/lower/index.h"
#include "generators/rows/lower/layout.h"

namespace cudaforge::rows {
namespace {

constexpr int64_t kElementwiseRow = 1024;

class StageBuilder {
 public:
  StageBuilder(const Graph& graph, const std::vector<TensorSpec>& inputs,
               const std::vector<GraphOutput>& outputs)
      : graph_(graph),
        inputs_(inputs),
        outputs_(outputs),
        alive_(graph.nodes().size(), false),
        lowered_(alive_.size(), false),
        scratch_(alive_.size(), -1),
        stored_(outputs.size(), false) {}

  Result<Program> Build() {
    for (const GraphOutput& output : outputs_) MarkAlive(output.node);
    for (size_t id = 0; id < alive_.size(); ++id) {
      if (alive_[id] && graph_.nodes()[id].IsAnchor() && !lowered_[id]) {
        CF_RETURN_IF_ERROR(BuildAnchorStage(static_cast<int>(id)));
      }
    }
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (!stored_[o]) CF_RETURN_IF_ERROR(BuildElementStage(o));
    }
    return std::move(program_);
  }

 private:
  void MarkAlive(int id) {
    if (alive_[static_cast<size_t>(id)]) return;
    alive_[static_cast<size_t>(id)] = true;
    for (int operand : graph_.node(id).operands) MarkAlive(operand);
  }

  bool InScratch(int id) const { return scratch_[static_cast<size_t>(id)] >= 0; }
  bool Depends(int id) const { return depends_[static_cast<size_t>(id)]; }
  const Index* MapOf(int id) const {
    const auto found = maps_.find(id);
    return found == maps_.end() ? nullptr : &found->second;
  }

  // Records where operands of a value at `index` are read.
  void MapOperands(int id, const Index& index) {
    if (!maps_.emplace(id, index).second || InScratch(id)) return;
    const GraphNode& node = graph_.node(id);
    if (node.kind == GraphNode::Kind::kPointwise) {
      for (int operand : node.operands) {
        MapOperands(operand, BroadcastIndex(index, graph_.sizes(operand), loops_));
      }
    } else if ((node.kind == GraphNode::Kind::kView && !node.HasBounds()) ||
               node.kind == GraphNode::Kind::kMerge) {
      const int operand = node.operands[0];
      const auto from = OperandIndex(node, graph_.sizes(operand), index, loops_);
      if (from) MapOperands(operand, *from);
    }
  }

  // The index of a pointwise result, from its operands. Those that depend on this stage's
  // reductions must agree.
  std::optional<Index> PointwiseIndex(int id) const {
    const GraphNode& node = graph_.node(id);
    const size_t rank = node.sizes.size();
    Index index(rank, ZeroIndex(loops_));
    std::vector<bool> known(rank);
    for (size_t d = 0; d < rank; ++d) known[d] = node.sizes[d] == 1;
    for (bool dependent : {true, false}) {
      for (int operand : node.operands) {
        const Index* from = MapOf(operand);
        if (Depends(operand) != dependent || !from) continue;
        const std::vector<int64_t>& sizes = graph_.sizes(operand);
        for (size_t d = 0; d < sizes.size(); ++d) {
          const size_t at = rank - sizes.size() + d;
          if (sizes[d] == 1) continue;
          if (known[at]) {
            if (dependent && !SameIndex(index[at], (*from)[d])) return std::nullopt;
            continue;
          }
          index[at] = (*from)[d];
          known[at] = true;
        }
      }
    }
    // Dimensions of operands without an index use the unused loops, if the sizes fit in order.
    std::vector<size_t> missing;
    for (size_t d = 0; d < rank; ++d) {
      if (!known[d]) missing.push_back(d);
    }
    if (missing.empty()) return WalksOnce(index) ? std::optional<Index>(index) : std::nullopt;
    size_t next = 0;
    for (size_t i = 0; i < loops_.inner.size(); ++i) {
      const bool walked = std::any_of(index.begin(), index.end(),
                                      [&](const DimIndex& dim) { return dim.inner_coef[i] != 0; });
      if (walked) continue;
      if (next == missing.size() || node.sizes[missing[next]] != loops_.inner[i])
        return std::nullopt;
      index[missing[next++]].inner_coef[i] = 1;
    }
    if (next != missing.size() || !WalksOnce(index)) return std::nullopt;
    return index;
  }

  // Returns true if each loop is in at most one dimension. A diagonal cannot be a result's place.
  bool WalksOnce(const Index& index) const {
    for (size_t i = 0; i < loops_.outer.size() + loops_.inner.size(); ++i) {
      const size_t outer = loops_.outer.size();
      const auto walks = [&](const DimIndex& dim) {
        return (i < outer ? dim.outer_coef[i] : dim.inner_coef[i - outer]) != 0;
      };
      if (std::count_if(index.begin(), index.end(), walks) > 1) return false;
    }
    return true;
  }

  // Returns true if reducing or scanning `node` with its operand at `index` uses exactly this
  // stage's rows.
  bool SameRows(const GraphNode& node, const Index& index) const {
    if (!IsPlain(index)) return false;
    const std::vector<int64_t>& sizes = graph_.sizes(node.operands[0]);
    int64_t rows = 1, length = 1;
    DimIndex flat = ZeroIndex(loops_);
    for (size_t d = 0; d < sizes.size(); ++d) {
      const bool reduced = std::count(node.dims.begin(), node.dims.end(), static_cast<int>(d)) > 0;
      const std::vector<int64_t>& foreign = reduced ? index[d].outer_coef : index[d].inner_coef;
      if (std::any_of(foreign.begin(), foreign.end(), [](int64_t c) { return c != 0; }))
        return false;
      (reduced ? length : rows) *= sizes[d];
    }
    if (rows != NumElements(loops_.outer) || length != NumElements(loops_.inner)) return false;
    if (!Covers(index, sizes, loops_, true)) return false;
    const bool ordered = node.kind == GraphNode::Kind::kScan || node.reduce == ReduceOp::kArgMax ||
                         node.reduce == ReduceOp::kArgMin;
    if (!ordered) return true;
    int64_t scale = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      if (std::count(node.dims.begin(), node.dims.end(), static_cast<int>(d)) == 0) continue;
      AddScaled(flat, index[d], scale);
      scale *= sizes[d];
    }
    return flat.inner_coef == ContiguousStrides(loops_.inner);
  }

  static Index ResultIndex(const GraphNode& node, Index index, const Loops& loops) {
    if (node.kind == GraphNode::Kind::kScan) return index;
    for (int dim : node.dims) index[static_cast<size_t>(dim)] = ZeroIndex(loops);
    return index;
  }

  bool PlaceAnchor(int id, const GraphNode& first, const Index& first_index) {
    const GraphNode& node = graph_.node(id);
    const int operand = node.operands[0];
    const Index* at = MapOf(operand);
    std::optional<Index> index;
    if (at && SameRows(node, *at)) {
      index = *at;
    } else if (!Depends(operand) && graph_.sizes(operand) == graph_.sizes(first.operands[0]) &&
               node.dims == first.dims && SameRows(node, first_index)) {
      index = first_index;
    }
    if (!index) return false;
    maps_[id] = ResultIndex(node, *index, loops_);
    MapOperands(operand, *index);
    anchors_[id] = std::move(*index);
    depends_[static_cast<size_t>(id)] = true;
    lowered_[static_cast<size_t>(id)] = true;
    return true;
  }

  void PlaceNodes(int first) {
    const GraphNode& first_node = graph_.node(first);
    const Index first_index = *MapOf(first_node.operands[0]);
    for (size_t i = 0; i < alive_.size(); ++i) {
      const int id = static_cast<int>(i);
      const GraphNode& node = graph_.nodes()[i];
      if (!alive_[i] || InScratch(id) || node.operands.empty()) continue;
      if (node.IsAnchor() && lowered_[i]) continue;
      const bool blocked =
          std::any_of(node.operands.begin(), node.operands.end(),
                      [&](int operand) { return blocked_[static_cast<size_t>(operand)]; });
      const bool dependent = std::any_of(node.operands.begin(), node.operands.end(),
                                         [&](int operand) { return Depends(operand); });
      if (blocked) {
        blocked_[i] = true;
      } else if (node.IsAnchor()) {
        blocked_[i] = !PlaceAnchor(id, first_node, first_index);
      } else if (dependent || !MapOf(id)) {
        std::optional<Index> index;
        if (node.kind == GraphNode::Kind::kPointwise) {
          index = PointwiseIndex(id);
        } else if (const Index* from = MapOf(node.operands[0])) {
          index = ViewIndex(node, *from, loops_);
        }
        if (index) maps_[id] = std::move(*index);
        depends_[i] = dependent && index.has_value();
        blocked_[i] = dependent && !index.has_value();
      }
    }
  }

  // Nodes that later stages read: row values if possible, so that element values are recomputed
  // instead of stored.
  void Frontier(int id, std::vector<int>& nodes) const {
    if (std::count(nodes.begin(), nodes.end(), id) > 0) return;
    if (graph_.node(id).IsAnchor() || !UsesInner(*MapOf(id))) {
      nodes.push_back(id);
      return;
    }
    for (int operand : graph_.node(id).operands) {
      if (Depends(operand)) Frontier(operand, nodes);
    }
  }

  Status BuildAnchorStage(int first) {
    const GraphNode& node = graph_.node(first);
    const std::vector<int64_t>& sizes = graph_.sizes(node.operands[0]);
    loops_ = Loops{};
    maps_.clear();
    anchors_.clear();
    depends_.assign(alive_.size(), false);
    blocked_.assign(alive_.size(), false);
    std::vector<bool> reduced(sizes.size());
    for (int dim : node.dims) reduced[static_cast<size_t>(dim)] = true;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] != 1) (reduced[d] ? loops_.inner : loops_.outer).push_back(sizes[d]);
    }
    Index index(sizes.size(), ZeroIndex(loops_));
    size_t outer = 0, inner = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1) continue;
      (reduced[d] ? index[d].inner_coef[inner++] : index[d].outer_coef[outer++]) = 1;
    }
    MapOperands(node.operands[0], index);
    PlaceNodes(first);
    return WriteAnchorStage();
  }

  Status WriteAnchorStage() {
    StageEmitter emitter(graph_, inputs_, loops_, scratch_, anchors_, maps_);
    std::vector<int> frontier;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (stored_[o]) continue;
      const int id = outputs_[o].node;
      const Index* index = MapOf(id);
      const bool here = index && !blocked_[static_cast<size_t>(id)] &&
                        Covers(*index, graph_.sizes(id), loops_, UsesInner(*index));
      if (here) {
        CF_RETURN_IF_ERROR(emitter.Store(id, *index, {BufferKind::kOutput, static_cast<int>(o)},
                                         outputs_[o].spec.dtype, outputs_[o].spec.strides));
        stored_[o] = true;
      } else if (Depends(id)) {
        Frontier(id, frontier);
      }
    }
    for (size_t i = 0; i < alive_.size(); ++i) {
      if (!alive_[i] || !blocked_[i]) continue;
      for (int operand : graph_.nodes()[i].operands) {
        if (Depends(operand)) Frontier(operand, frontier);
      }
    }
    for (int id : frontier) {
      const GraphNode& node = graph_.node(id);
      const Index& index = *MapOf(id);
      if (!Covers(index, node.sizes, loops_, UsesInner(index))) {
        return Status::Unsupported("a value between stages does not cover its rows");
      }
      const int buffer = static_cast<int>(program_.scratch_bytes.size());
      const DType storage = StorageOf(node.type);
      program_.scratch_bytes.push_back(NumElements(node.sizes) * DTypeSize(storage));
      CF_RETURN_IF_ERROR(emitter.Store(id, index, {BufferKind::kScratch, buffer}, storage,
                                       ContiguousStrides(node.sizes)));
      kept_.emplace_back(id, buffer);
    }
    for (const auto& [id, buffer] : kept_) scratch_[static_cast<size_t>(id)] = buffer;
    program_.stages.push_back(emitter.Take());
    LayoutStage(program_.stages.back());
    return Status::Ok();
  }

  // Writes all outputs of this shape that need no further reduction.
  Status BuildElementStage(size_t first) {
    const std::vector<int64_t>& sizes = graph_.sizes(outputs_[first].node);
    loops_ = Loops{};
    maps_.clear();
    anchors_.clear();
    for (int64_t size : sizes) {
      if (size != 1) loops_.outer.push_back(size);
    }
    Index index(sizes.size(), ZeroIndex(loops_));
    size_t outer = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] != 1) index[d].outer_coef[outer++] = 1;
    }
    StageEmitter emitter(graph_, inputs_, loops_, scratch_, anchors_, maps_);
    for (size_t o = first; o < outputs_.size(); ++o) {
      if (stored_[o] || graph_.sizes(outputs_[o].node) != sizes) continue;
      CF_RETURN_IF_ERROR(emitter.Store(outputs_[o].node, index,
                                       {BufferKind::kOutput, static_cast<int>(o)},
                                       outputs_[o].spec.dtype, outputs_[o].spec.strides));
      stored_[o] = true;
    }
    program_.stages.push_back(emitter.Take());
    ShapeElementwise(program_.stages.back(), kElementwiseRow);
    return Status::Ok();
  }

  const Graph& graph_;
  const std::vector<TensorSpec>& inputs_;
  const std::vector<GraphOutput>& outputs_;
  Program program_;
  std::vector<bool> alive_;
  std::vector<bool> lowered_;  // reductions and scans computed by some stage
  std::vector<int> scratch_;   // by node: its scratch buffer, or -1
  std::vector<std::pair<int, int>> kept_;
  std::vector<bool> stored_;  // by output
  // State of the stage being built:
  Loops loops_;
  std::map<int, Index> maps_;     // where a node is read
  std::map<int, Index> anchors_;  // where a reduction reads its operand
  std::vector<bool> depends_;     // on a reduction of this stage
  std::vector<bool> blocked_;     // needs a later stage
};

}  // namespace

Result<Program> BuildStages(const Graph& graph, const std::vector<TensorSpec>& inputs,
                            const std::vector<GraphOutput>& outputs) {
  return StageBuilder(graph, inputs, outputs).Build();
}

}  // namespace cudaforge::rows
