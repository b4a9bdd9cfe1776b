"""Coders and Judges with prepared replies, and models with matrix products for them."""

from __future__ import annotations

# A coder that answers its n-th request with the n-th of REPLIES, the last one for good.
CODER = """
import json, pathlib, sys
request = json.load(sys.stdin)
log = pathlib.Path(__file__).with_suffix(".log")
with log.open("a") as file:
    file.write(json.dumps(request) + "\\n")
replies = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
made = sum(json.loads(line)["role"] == request["role"] for line in log.open())
own = replies[request["role"]]
usage = {"input_tokens": 100, "output_tokens": 10}
print(json.dumps({"content": own[min(made, len(own)) - 1], "usage": usage, "model": "test"}))
"""

PLAN = """```json
{"launches": [{"kernel": "rows", "args": [{"in": 0}, {"in": 1}, {"out": 0}],
               "range": "out0.size0", "grain": "4"}], "scratch_bytes": [], "constraints": []}
```
"""
PRODUCT = """```cpp
#include <cstdint>
extern "C" void rows(void* const* buffers, const int64_t*, const double*, int64_t begin,
                     int64_t end) {
  const float* x = static_cast<const float*>(buffers[0]);
  const float* w = static_cast<const float*>(buffers[1]);
  float* out = static_cast<float*>(buffers[2]);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < 24; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < 16; ++k) sum += double{x[i * 16 + k]} * w[k * 24 + j];
      const float value = static_cast<float>(sum);
      out[i * 24 + j] = value < 0 ? 0.0f : value;
    }
  }
}
```
"""
WRONG = PLAN + PRODUCT.replace("value < 0 ? 0.0f : value", "value")
RIGHT = PLAN + PRODUCT
BROKEN = PLAN + "```cpp\nno C++\n```\n"
ADVICE = '{"issue": "negative values are kept", "plan": "apply the relu"}'

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(16, 24))
    def forward(self, x):
        return torch.relu(x @ self.w)
def make(): return Net(), (torch.randn(8, 16),)
"""

# Three regions.
PRODUCTS = """
import torch
class Net(torch.nn.Module):
    def forward(self, x, *others):
        return [torch.relu(x @ other) for other in others]
def make(): return Net(), (torch.randn(8, 16), *(torch.randn(16, n) for n in (24, 28, 20)))
"""
