"""Attention that a Coder has written, in compiled programs and in eager ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import Interception, Started
from cudaforge_backend._native import _C
from forged import compiled, win_every_race

ATTENTION = """```json
{"launches": [{"kernel": "queries", "args": [{"in": 0}, {"in": 1}, {"in": 2}, {"out": 0}],
               "range": "16", "grain": "4"}], "scratch_bytes": [], "constraints": []}
```
```cpp
#include <cstdint>
#include <cmath>
extern "C" void queries(void* const* buffers, const int64_t*, const double*, int64_t begin,
                        int64_t end) {  // two heads of 8 queries and keys of 4
  const float* in[3];
  for (int i = 0; i < 3; ++i) in[i] = static_cast<const float*>(buffers[i]);
  float* out = static_cast<float*>(buffers[3]);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row / 8 * 8, keys = row % 8 + 1;
    double score[8], top = -HUGE_VAL, sum = 0;
    bool odd = false;  // max() would pass over NaN
    for (int64_t j = 0; j < keys; ++j) {
      const float *q = in[0] + row * 4, *k = in[1] + (first + j) * 4;
      score[j] = 0;
      for (int d = 0; d < 4; ++d) score[j] += double{q[d]} * k[d];
      score[j] *= 0.5;
      odd = odd || score[j] != score[j];
      top = score[j] > top ? score[j] : top;
    }
    for (int64_t j = 0; j < keys; ++j) sum += score[j] = odd ? NAN : std::exp(score[j] - top);
    for (int d = 0; d < 4; ++d) {
      double value = 0;
      for (int64_t j = 0; j < keys; ++j) value += score[j] / sum * in[2][(first + j) * 4 + d];
      out[row * 4 + d] = static_cast<float>(value);
    }
  }
}
```
"""


def test_a_coders_attention_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any
) -> None:
    win_every_race(monkeypatch)
    agents = {"coder": coder([ATTENTION], []), "rounds": 1, "seconds": 120}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    made = compiled(attend, tmp_path / "cache", agents=agents)
    inputs = [torch.randn(1, 2, 8, 4) for _ in range(3)]
    with torch.no_grad():
        torch.testing.assert_close(made(*inputs), attend(*inputs))
    stats = cudaforge_backend.stats()
    (node,) = _C.store().lineage(*next((r["key"], r["arch"]) for r in _C.store().records()))[:1]
    assert (stats.hits, stats.forged) == (1, 1), node["verdict"]


# What PyTorch's own kernel for a CPU returns: also the logarithms that its backward reads.
WITH_LOGARITHMS = (
    ATTENTION.replace('{"out": 0}]', '{"out": 0}, {"out": 1}]')
    .replace("(buffers[3]);", "(buffers[3]), *logarithms = static_cast<float*>(buffers[4]);")
    .replace(
        "    for (int d = 0; d < 4; ++d) {\n      double value",
        "    logarithms[row % 8 * 2 + row / 8] = static_cast<float>(top + std::log(sum));\n"
        "    for (int d = 0; d < 4; ++d) {\n      double value",
    )
)


def eager_attention(coder: str, cache: Path) -> Interception:
    """Eager attention is looked up inside it, with kernels of one reply of the Coder's."""
    return cudaforge_backend.enable(
        ["aten::scaled_dot_product_attention"],
        on_miss="blocking",
        cache_dir=str(cache),
        agents={"coder": coder, "rounds": 1, "seconds": 120},
    )


def test_a_coders_attention_is_served_to_eager_calls_and_their_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any
) -> None:
    win_every_race(monkeypatch)
    attention = torch.nn.functional.scaled_dot_product_attention
    inputs = [torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3)]

    def run() -> tuple[torch.Tensor, ...]:
        made = attention(*inputs, is_causal=True)
        return made.detach(), *torch.autograd.grad(made.square().sum(), inputs)

    expected = run()
    op = "aten::_scaled_dot_product_flash_attention_for_cpu"
    with eager_attention(coder([WITH_LOGARITHMS], []), tmp_path / "cache"):
        for _ in range(2):
            torch.testing.assert_close(run(), expected)
    (node,) = _C.store().lineage(*next((r["key"], r["arch"]) for r in _C.store().records()))[:1]
    counts = cudaforge_backend.stats().eager
    assert counts[op].hits == 1, node["verdict"]


# One pass over the keys, as kernels do it; exp(-inf - -inf) is NaN where the first key is hidden.
ONE_PASS = ATTENTION.split("```json")[1].split("```")[0].replace('{"out"', '{"in": 3}, {"out"')
ONE_PASS = f"""```json{ONE_PASS}```
```cpp
#include <cstdint>
#include <cmath>
extern "C" void queries(void* const* buffers, const int64_t*, const double*, int64_t begin,
                        int64_t end) {{
  const float* in[4];
  for (int i = 0; i < 4; ++i) in[i] = static_cast<const float*>(buffers[i]);
  float* out = static_cast<float*>(buffers[4]);
  for (int64_t row = begin; row < end; ++row) {{
    const int64_t first = row / 8 * 8;
    double top = -HUGE_VAL, sum = 0, value[4] = {{}};
    for (int64_t j = 0; j < 8; ++j) {{
      double score = in[3][row % 8 * 8 + j];
      for (int d = 0; d < 4; ++d) {{
        score += 0.5 * in[0][row * 4 + d] * in[1][(first + j) * 4 + d];
      }}
      const double next = score > top || score != score ? score : top;
      const double scale = std::exp(top - next), weight = std::exp(score - next);
      for (int d = 0; d < 4; ++d) value[d] = value[d] * scale + weight * in[2][(first + j) * 4 + d];
      sum = sum * scale + weight;
      top = next;
    }}
    for (int d = 0; d < 4; ++d) out[row * 4 + d] = static_cast<float>(value[d] / sum);
  }}
}}
```
"""


# Right where a row has a key; where it has none, PyTorch's result on a CPU is zeros.
SOME_KEYS = ONE_PASS.replace("double scale =", "double scale = next == -HUGE_VAL ? 1 :").replace(
    "weight =", "weight = next == -HUGE_VAL ? 0 :"
)
GUARDED = SOME_KEYS.replace("value[d] / sum", "sum == 0 ? 0 : value[d] / sum")
KERNELS = {"no guard": ONE_PASS, "of a row with keys": SOME_KEYS, "guarded": GUARDED}


def scaled(reply: str, scale: float) -> str:
    """The kernel with another scale than 0.5."""
    assert reply.count("0.5 *") == 1
    return reply.replace("0.5 *", f"{scale!r} *")


def hidden_keys() -> torch.Tensor:
    """A mask that hides the first key, and from one query all of them."""
    mask = torch.zeros(8, 8).masked_fill(torch.arange(8) == 0, -torch.inf)
    mask[5] = -torch.inf
    return mask


def only_verdict() -> dict[str, Any]:
    """That of the one kernel that was tried."""
    ((key, arch),) = {(record["key"], record["arch"]) for record in _C.store().records()}
    verdict: dict[str, Any] = _C.store().lineage(key, arch)[0]["verdict"]
    return verdict


@pytest.mark.parametrize("kernel", KERNELS)
def test_eager_attention_is_tried_with_hidden_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, kernel: str
) -> None:
    win_every_race(monkeypatch)
    reply = (
        KERNELS[kernel]
        .replace('{"out": 0}]', '{"out": 0}, {"out": 1}]')
        .replace("(buffers[4]);", "(buffers[4]), *logarithms = static_cast<float*>(buffers[5]);")
        .replace(
            "    for (int d = 0; d < 4; ++d) out",
            "    logarithms[row % 8 * 2 + row / 8] = sum == 0 ? 0 : (float)(top + std::log(sum));\n"
            "    for (int d = 0; d < 4; ++d) out",
        )
    )
    # A kernel that was found serves this process for good: another scale is another region.
    scale = 0.5 + 2**-30 * list(KERNELS).index(kernel)
    reply = scaled(reply, scale)
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    expected = attention(q, k, v, hidden_keys(), scale=scale)
    with eager_attention(coder([reply], []), tmp_path / "cache"):
        for _ in range(2):
            torch.testing.assert_close(attention(q, k, v, hidden_keys(), scale=scale), expected)
    guarded = kernel == "guarded"
    assert only_verdict()["verdict"] == ("accepted" if guarded else "wrong_values")
    counts = cudaforge_backend.stats().eager
    assert counts["aten::_scaled_dot_product_flash_attention_for_cpu"].hits == int(guarded)


def of_booleans(reply: str) -> str:
    """The kernel with a mask of booleans, which a compiled graph's region begins with."""
    plan = '{"in": 0}, {"in": 1}, {"in": 2}, {"in": 3}'
    mask = "static_cast<const bool*>(buffers[3])[row % 8 * 8 + j] ? 0.0 : -HUGE_VAL;"
    assert plan in reply and "in[3][row % 8 * 8 + j];" in reply
    reply = reply.replace(plan, '{"in": 1}, {"in": 2}, {"in": 3}, {"in": 0}')
    return reply.replace("in[3][row % 8 * 8 + j];", mask)


@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_attention_is_tried_with_hidden_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, kernel: str, boolean: bool
) -> None:
    win_every_race(monkeypatch)
    reply = of_booleans(KERNELS[kernel]) if boolean else KERNELS[kernel]
    agents = {"coder": coder([reply], []), "rounds": 1, "seconds": 120}
    regions: list[tuple[str, str]] = []
    cudaforge_backend.set_progress(
        lambda event: isinstance(event, Started) and regions.append((event.key, event.arch))
    )
    made = compiled(
        torch.nn.functional.scaled_dot_product_attention, tmp_path / "cache", agents=agents
    )
    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    mask = hidden_keys() == 0 if boolean else hidden_keys()
    with torch.no_grad():
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        torch.testing.assert_close(made(q, k, v, mask), expected)
    guarded = kernel == "guarded"
    assert cudaforge_backend.stats().hits == int(guarded)
    verdict = _C.store().lineage(*regions[0])[0]["verdict"]["verdict"]
    assert verdict == ("accepted" if guarded else "wrong_values")


# Every key is seen, and the NaN of one is passed over.
LOSES_NAN = """```json
{"launches": [{"kernel": "queries", "args": [{"in": 0}, {"in": 1}, {"in": 2}, {"out": 0},
               {"out": 1}], "range": "32", "grain": "4"}], "scratch_bytes": [], "constraints": []}
```
```cpp
#include <cstdint>
#include <cmath>
extern "C" void queries(void* const* buffers, const int64_t*, const double*, int64_t begin,
                        int64_t end) {  // two heads of 16 queries and keys of 4
  const float* in[3];
  for (int i = 0; i < 3; ++i) in[i] = static_cast<const float*>(buffers[i]);
  float *out = static_cast<float*>(buffers[3]), *logarithms = static_cast<float*>(buffers[4]);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row / 16 * 16;
    double score[16], top = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < 16; ++j) {
      score[j] = 0;
      for (int d = 0; d < 4; ++d) score[j] += 0.5 * in[0][row * 4 + d] * in[1][(first + j) * 4 + d];
      top = score[j] > top ? score[j] : top;
    }
    for (int64_t j = 0; j < 16; ++j) sum += score[j] = WEIGHT;
    logarithms[row % 16 * 2 + row / 16] = static_cast<float>(top + std::log(sum));
    for (int d = 0; d < 4; ++d) {
      double value = 0;
      for (int64_t j = 0; j < 16; ++j) value += score[j] / sum * in[2][(first + j) * 4 + d];
      out[row * 4 + d] = static_cast<float>(value);
    }
  }
}
```
"""


@pytest.mark.parametrize(
    ("which", "loses"), [("k", "exp"), ("v", "value"), ("k", "nothing"), ("v", "nothing")]
)
def test_attention_is_tried_with_nan_in_keys_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, which: str, loses: str
) -> None:
    win_every_race(monkeypatch)
    reply = LOSES_NAN
    weight = "std::exp(score[j] - top)"
    if loses == "exp":  # of a single key; what a query's NaN does to all is kept
        weight = f"score[j] == score[j] || top == -HUGE_VAL ? {weight} : 0"
    elif loses == "value":
        reply = reply.replace("in[2][(first + j) * 4 + d];", "VALUE;")
        value = "in[2][(first + j) * 4 + d]"
        reply = reply.replace("VALUE", f"({value} == {value} ? {value} : 0)")
    scale = 0.5 + 2**-30 * (len(loses) + ord(which))
    reply = scaled(reply, scale).replace("WEIGHT", weight)
    attention = torch.nn.functional.scaled_dot_product_attention
    inputs = {name: torch.randn(1, 2, 16, 4) for name in "qkv"}
    inputs[which][0, 1, 3, 0] = torch.nan
    with eager_attention(coder([reply], []), tmp_path / "cache"):
        for _ in range(2):
            made = attention(*inputs.values(), scale=scale)
            assert made.isnan().sum() == (64 if which == "k" else 16)
    verdict = only_verdict()
    if loses == "nothing":
        assert verdict["verdict"] == "accepted"
    else:
        sets = {"k": "nan_operands", "v": "infinite_operands"}
        assert verdict["verdict"] == "wrong_values"
        assert verdict["evidence"]["input_set"] == sets[which], verdict
