#include "tests/cpp/verify/slice_regions_aten.h"

namespace cudaforge {
namespace {

using B = RegionBuilder;
using Regions = std::vector<SliceRegion>;

TensorSpec I64(std::vector<int64_t> sizes) { return Spec(DType::kInt64, std::move(sizes)); }

void AddPointwise(Regions* all) {
  {
    B b;
    const Json x = b.Input({6, 5, 8}), y = b.Input({5, 1}), z = b.Input({8});
    const Json s = b.Call("mul.Tensor", {x, y}, {F32({6, 5, 8})});
    all->push_back(
        {"pointwise, broadcast", b.Done({b.Call("add.Tensor", {s, z}, {F32({6, 5, 8})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({6, 5, 8}, DType::kFloat32, {40, 1, 5});
    all->push_back({"pointwise, strided", b.Done({b.Call("gelu", {x}, {F32({6, 5, 8})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({7, 7}), t = b.Call("t_copy", {x}, {F32({7, 7})});
    all->push_back({"x + x.t()", b.Done({b.Call("add.Tensor", {x, t}, {F32({7, 7})})}), {true}});
  }
  {
    B b;
    const Json c = b.Input({4, 9}, DType::kBool), x = b.Input({4, 9}), y = b.Input({9});
    all->push_back({"where", b.Done({b.Call("where.self", {c, x, y}, {F32({4, 9})})}), {true}});
  }
}

void AddLayouts(Regions* all) {
  {
    B b;
    const Json x = b.Input({3, 4, 10}), w = b.Input({10, 6});
    const Json v = b.Call("_unsafe_view", {x, L({12, 10})}, {F32({12, 10})});
    const Json p = b.Call("mm", {v, w}, {F32({12, 6})});
    const Json r = b.Call("_unsafe_view", {p, L({3, 4, 6})}, {F32({3, 4, 6})});
    all->push_back({"linear by views", b.Done({b.Call("relu", {r}, {F32({3, 4, 6})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({3, 4, 2, 5});
    const Json p = b.Call("permute_copy", {x, L({0, 2, 1, 3})}, {F32({3, 2, 4, 5})});
    const Json v = b.Call("_unsafe_view", {p, L({6, -1})}, {F32({6, 20})});
    const Json s = b.Call("_softmax", {v, -1, false}, {F32({6, 20})});
    all->push_back({"permute, view, softmax", b.Done({s}), {true}});
  }
  {
    B b;
    const Json x = b.Input({6, 4}), y = b.Input({6, 3});
    const Json c = b.Call("cat", {Json::array({x, y}), 1}, {F32({6, 7})});
    all->push_back(
        {"cat, sum", b.Done({b.Call("sum.dim_IntList", {c, L({1}), false}, {F32({6})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({4, 9, 3});
    const Json s = b.Call("slice_copy.Tensor", {x, 1, 2, 8, 2}, {F32({4, 3, 3})});
    const Json u = b.Call("unsqueeze_copy", {s, 0}, {F32({1, 4, 3, 3})});
    const Json q = b.Call("squeeze_copy", {u}, {F32({4, 3, 3})});
    all->push_back(
        {"slice, unsqueeze, squeeze", b.Done({b.Call("exp", {q}, {F32({4, 3, 3})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({1, 4, 1}), y = b.Input({4, 5});
    const Json e = b.Call("expand_copy", {x, L({3, -1, 5})}, {F32({3, 4, 5})});
    all->push_back(
        {"expand, mul", b.Done({b.Call("mul.Tensor", {e, y}, {F32({3, 4, 5})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({4, 5});
    const Json f = b.Call("flip", {x, L({1})}, {F32({4, 5})});
    const Json r = b.Call("roll", {f, L({2}), L({1})}, {F32({4, 5})});
    const Json p = b.Call("constant_pad_nd", {r, L({1, 2}), 0.5}, {F32({4, 8})});
    const Json t = b.Call("repeat", {p, L({2, 1, 2})}, {F32({2, 4, 16})});
    all->push_back(
        {"flip, roll, pad, repeat", b.Done({b.Call("sin", {t}, {F32({2, 4, 16})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({3, 6, 6});
    const Json t = b.Call("tril", {x, 0}, {F32({3, 6, 6})});
    all->push_back({"tril, sum",
                    b.Done({b.Call("sum.dim_IntList", {t, L({2}), false}, {F32({3, 6})})}),
                    {true}});
  }
  {
    B b;
    const Json w = b.Input({11, 6}), i = b.Input({4, 3}, DType::kInt64);
    const Json e = b.Call("embedding", {w, i}, {F32({4, 3, 6})});
    all->push_back({"embedding, layer norm",
                    b.Done({b.Call("native_layer_norm", {e, L({6}), nullptr, nullptr, 1e-5},
                                   {F32({4, 3, 6}), F32({4, 3, 1}), F32({4, 3, 1})})}),
                    {true}});
  }
  {
    B b;
    const Json x = b.Input({5, 9}), i = b.Input({5, 4}, DType::kInt64);
    all->push_back(
        {"gather, exp",
         b.Done({b.Call("exp", {b.Call("gather", {x, 1, i}, {F32({5, 4})})}, {F32({5, 4})})}),
         {true}});
  }
  {
    B b;
    const Json x = b.Input({9, 5}), i = b.Input({4}, DType::kInt64);
    all->push_back(
        {"index_select", b.Done({b.Call("index_select", {x, 0, i}, {F32({4, 5})})}), {true}});
  }
}

void AddReductions(Regions* all) {
  for (const char* op : {"sum.dim_IntList", "mean.dim", "amax"}) {
    B b;
    const Json x = b.Input({5, 6, 7});
    const Json y = b.Call("mul.Tensor", {x, x}, {F32({5, 6, 7})});
    all->push_back({op, b.Done({b.Call(op, {y, L({1, 2}), true}, {F32({5, 1, 1})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({5, 6, 7});
    const Json m = b.Call("mean.dim", {x, L({0}), true}, {F32({1, 6, 7})});
    const Json d = b.Call("sub.Tensor", {x, m}, {F32({5, 6, 7})});
    all->push_back({"x - x.mean(0)", b.Done({d}), {true}});
  }
  {
    B b;
    const Json x = b.Input({5, 12});
    const Json v =
        b.Call("var.correction", {x, L({1})}, {F32({5})}, {{"correction", 1}, {"keepdim", false}});
    all->push_back({"var, rsqrt", b.Done({b.Call("rsqrt", {v}, {F32({5})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({5, 12});
    const Json m = b.Call("max.dim", {x, 1, false}, {F32({5}), I64({5})});
    all->push_back({"max with places", b.Done({m, B::Other(m, 1)}), {true, true}});
  }
  {
    B b;
    const Json x = b.Input({4, 5, 12});
    all->push_back({"cumsum", b.Done({b.Call("cumsum", {x, 2}, {F32({4, 5, 12})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({4, 12}), g = b.Input({4, 12});
    const Json y = b.Call("_log_softmax", {x, 1, false}, {F32({4, 12})});
    all->push_back(
        {"log softmax, mul", b.Done({b.Call("mul.Tensor", {y, g}, {F32({4, 12})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({4, 12});
    all->push_back(
        {"logsumexp", b.Done({b.Call("logsumexp", {x, L({1}), false}, {F32({4})})}), {true}});
  }
  for (const char* op : {"_softmax_backward_data", "_log_softmax_backward_data"}) {
    B b;
    const Json g = b.Input({4, 12}), y = b.Input({4, 12});
    all->push_back(
        {op, b.Done({b.Call(op, {g, y, 1, {{"dtype", "float32"}}}, {F32({4, 12})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({30});
    all->push_back({"sum of all", b.Done({b.Call("sum", {x}, {F32({})})}), {false}});
  }
  {
    B b;
    const Json x = b.Input({4, 10});
    const Json s = b.Call("sum", {b.Call("mul.Tensor", {x, x}, {F32({4, 10})})}, {F32({})});
    const Json n = b.Call("sqrt", {s}, {F32({})});
    all->push_back(
        {"x / x.norm()", b.Done({b.Call("div.Tensor", {x, n}, {F32({4, 10})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({4, 10});
    const Json s = b.Call("sort", {x, 1, false}, {F32({4, 10}), I64({4, 10})});
    all->push_back({"sort", b.Done({s}), {false}});
  }
  {
    B b;
    const Json x = b.Input({6, 10}), t = b.Input({6}, DType::kInt64);
    const Json y = b.Call("_log_softmax", {x, 1, false}, {F32({6, 10})});
    const Json none = b.Call("nll_loss_forward", {y, t, nullptr, 0, -100}, {F32({6}), F32({})});
    const Json mean = b.Call("nll_loss_forward", {y, t, nullptr, 1, -100}, {F32({}), F32({})});
    all->push_back({"cross entropy", b.Done({none, mean}), {true, false}});
  }
  {
    B b;
    const Json g = b.Input({}), x = b.Input({6, 10}), t = b.Input({6}, DType::kInt64);
    const Json w = b.Input({});
    all->push_back(
        {"nll_loss_backward",
         b.Done({b.Call("nll_loss_backward", {g, x, t, nullptr, 1, -100, w}, {F32({6, 10})})}),
         {true}});
  }
}

void AddNorms(Regions* all) {
  const Json yes = Json::array({true, true, true});
  {
    B b;
    const Json x = b.Input({3, 4, 8}), r = b.Input({3, 4, 8}), w = b.Input({8}), o = b.Input({8});
    const Json a = b.Call("add.Tensor", {x, r}, {F32({3, 4, 8})});
    const Json n = b.Call("native_layer_norm", {a, L({8}), w, o, 1e-5},
                          {F32({3, 4, 8}), F32({3, 4, 1}), F32({3, 4, 1})});
    all->push_back({"layer norm", b.Done({n, B::Other(n, 1), B::Other(n, 2)}), {true, true, true}});
  }
  {
    B b;
    const Json g = b.Input({12, 8}), x = b.Input({12, 8}), m = b.Input({12, 1});
    const Json s = b.Input({12, 1}), w = b.Input({8}), o = b.Input({8});
    const Json n = b.Call("native_layer_norm_backward", {g, x, L({8}), m, s, w, o, yes},
                          {F32({12, 8}), F32({8}), F32({8})});
    all->push_back(
        {"layer norm backward", b.Done({n, B::Other(n, 1), B::Other(n, 2)}), {true, true, true}});
  }
  {
    B b;
    const Json x = b.Input({3, 4, 8}), w = b.Input({8});
    const Json n =
        b.Call("_fused_rms_norm", {x, L({8}), w, 1e-5}, {F32({3, 4, 8}), F32({3, 4, 1})});
    all->push_back({"rms norm", b.Done({b.Call("silu", {n}, {F32({3, 4, 8})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({3, 8, 5, 2}), w = b.Input({8}), o = b.Input({8});
    const Json n = b.Call("native_group_norm", {x, w, o, 3, 8, 10, 4, 1e-5},
                          {F32({3, 8, 5, 2}), F32({3, 4}), F32({3, 4})});
    all->push_back({"group norm",
                    b.Done({b.Call("relu", {n}, {F32({3, 8, 5, 2})}), B::Other(n, 1)}),
                    {true, true}});
  }
  {
    B b;
    const Json g = b.Input({3, 8, 10}), x = b.Input({3, 8, 10}), m = b.Input({3, 4});
    const Json s = b.Input({3, 4}), w = b.Input({8});
    const Json n = b.Call("native_group_norm_backward", {g, x, m, s, w, 3, 8, 10, 4, yes},
                          {F32({3, 8, 10}), F32({8}), F32({8})});
    all->push_back(
        {"group norm backward", b.Done({n, B::Other(n, 1), B::Other(n, 2)}), {true, true, true}});
  }
  {
    B b;
    const Json x = b.Input({6, 5, 4, 4}), w = b.Input({5}), o = b.Input({5}), m = b.Input({5});
    const Json v = b.Input({5});
    const Json n = b.Call("_native_batch_norm_legit_no_training", {x, w, o, m, v, 0.1, 1e-5},
                          {F32({6, 5, 4, 4}), F32({0}), F32({0})});
    all->push_back(
        {"batch norm in service", b.Done({b.Call("relu", {n}, {F32({6, 5, 4, 4})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({6, 5, 4, 4}), w = b.Input({5}), o = b.Input({5});
    const Json n = b.Call("_native_batch_norm_legit.no_stats", {x, w, o, true, 0.1, 1e-5},
                          {F32({6, 5, 4, 4}), F32({5}), F32({5})});
    all->push_back({"batch norm", b.Done({n, B::Other(n, 1)}), {true, true}});
  }
  {
    B b;
    const Json g = b.Input({6, 5, 4}), x = b.Input({6, 5, 4}), w = b.Input({5}), m = b.Input({5});
    const Json s = b.Input({5});
    const Json n =
        b.Call("native_batch_norm_backward", {g, x, w, nullptr, nullptr, m, s, true, 1e-5, yes},
               {F32({6, 5, 4}), F32({5}), F32({5})});
    all->push_back({"batch norm backward", b.Done({n, B::Other(n, 1)}), {true, true}});
  }
}

void AddWindows(Regions* all) {
  const Json two = L({2, 2}), one = L({1, 1}), zero = L({0, 0}), three = L({3, 3});
  {
    B b;
    const Json x = b.Input({3, 4, 6, 6});
    const Json p =
        b.Call("avg_pool2d", {x, two, two, zero, false, true, nullptr}, {F32({3, 4, 3, 3})});
    all->push_back({"average pooling", b.Done({b.Call("exp", {p}, {F32({3, 4, 3, 3})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({3, 4, 6, 6});
    const Json p = b.Call("max_pool2d_with_indices", {x, two, two, zero, one, false},
                          {F32({3, 4, 3, 3}), I64({3, 4, 3, 3})});
    all->push_back({"maximum pooling", b.Done({p, B::Other(p, 1)}), {true, true}});
  }
  {
    B b;
    const Json g = b.Input({3, 4, 3, 3}), x = b.Input({3, 4, 6, 6});
    const Json p = b.Call("avg_pool2d_backward", {g, x, two, two, zero, false, true, nullptr},
                          {F32({3, 4, 6, 6})});
    all->push_back({"average pooling backward", b.Done({p}), {true}});
  }
  for (const int64_t groups : {1, 4}) {
    B b;
    const Json x = b.Input({3, 4, 6, 6}), w = b.Input({4, 4 / groups, 3, 3}), o = b.Input({4});
    const Json c =
        b.Call("convolution", {x, w, o, one, one, one, false, zero, groups}, {F32({3, 4, 6, 6})});
    all->push_back({"convolution", b.Done({b.Call("relu", {c}, {F32({3, 4, 6, 6})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({3, 4, 6, 6}), w = b.Input({4, 5, 3, 3});
    const Json c =
        b.Call("convolution", {x, w, nullptr, two, one, one, true, one, 1}, {F32({3, 5, 12, 12})});
    all->push_back({"transposed convolution", b.Done({c}), {true}});
  }
  for (const int64_t groups : {1, 4}) {
    B b;
    const Json g = b.Input({3, 4, 6, 6}), x = b.Input({3, 4, 6, 6});
    const Json w = b.Input({4, 4 / groups, 3, 3});
    const Json c = b.Call(
        "convolution_backward",
        {g, x, w, L({4}), one, one, one, false, zero, groups, Json::array({true, true, true})},
        {F32({3, 4, 6, 6}), F32({4, 4 / groups, 3, 3}), F32({4})});
    all->push_back(
        {"convolution backward", b.Done({c, B::Other(c, 1), B::Other(c, 2)}), {true, true, true}});
  }
}

void AddProducts(Regions* all) {
  {
    B b;
    const Json x = b.Input({6, 8}), w = b.Input({8, 5}), o = b.Input({5});
    const Json p = b.Call("addmm", {o, x, w}, {F32({6, 5})}, {{"beta", 1}, {"alpha", 1}});
    all->push_back({"addmm, gelu", b.Done({b.Call("tanh", {p}, {F32({6, 5})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({3, 6, 8}), y = b.Input({3, 8, 5});
    all->push_back({"bmm", b.Done({b.Call("bmm", {x, y}, {F32({3, 6, 5})})}), {true}});
  }
  {
    B b;
    const Json x = b.Input({6, 8});
    const Json t = b.Call("t_copy", {x}, {F32({8, 6})});
    all->push_back({"x x.t()", b.Done({b.Call("mm", {x, t}, {F32({6, 6})})}), {true}});
  }
  for (const bool causal : {false, true}) {
    B b;
    const Json q = b.Input({2, 4, 6, 8}), k = b.Input({2, 4, 6, 8}), v = b.Input({2, 4, 6, 8});
    all->push_back({causal ? "causal attention" : "attention",
                    b.Done({b.Call("scaled_dot_product_attention", {q, k, v, nullptr, 0.0, causal},
                                   {F32({2, 4, 6, 8})})}),
                    {true}});
  }
  {
    B b;
    const Json q = b.Input({2, 4, 6, 8}), k = b.Input({2, 2, 5, 8}), v = b.Input({2, 2, 5, 8});
    const Json m = b.Input({6, 5});
    all->push_back({"attention of groups",
                    b.Done({b.Call("scaled_dot_product_attention", {q, k, v, m, 0.0, false},
                                   {F32({2, 4, 6, 8})}, {{"enable_gqa", true}})}),
                    {true}});
  }
  {
    B b;
    const Json g = b.Input({4, 3, 6}), i = b.Input({4, 3}, DType::kInt64);
    all->push_back(
        {"embedding backward",
         b.Done({b.Call("embedding_dense_backward", {g, i, 9, -1, false}, {F32({9, 6})})}),
         {true}});
  }
}

}  // namespace

std::vector<SliceRegion> SliceRegions() {
  Regions all;
  AddPointwise(&all);
  AddLayouts(&all);
  AddReductions(&all);
  AddNorms(&all);
  AddWindows(&all);
  AddProducts(&all);
  return all;
}

}  // namespace cudaforge
