"""Imported by the server of ready.py: what the first compilation of a process loads and hashes."""

from importlib import import_module

import torch._inductor.compile_fx
from torch._dynamo.backends.registry import _lazy_import
from torch._inductor.codecache import torch_key
from torch._inductor.fx_passes import joint_graph, post_grad

for _name in (
    "setuptools",
    "sympy.physics.units",
    "sympy.tensor.tensor",
    "torch._dynamo.dce_extra_outputs",
    "torch._dynamo.repro.after_dynamo",
    "torch._inductor.choices",
    "torch._inductor.codegen.cpp_wrapper_cpu_array_ref",
    "torch._inductor.codegen.cpp_wrapper_mps",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.pallas",
    "torch._inductor.codegen.python_wrapper_mtia",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.fx_passes.apply_gumbel_max_trick",
    "torch._inductor.fx_passes.efficient_conv_bn_eval",
    "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.runtime.caching",
    "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.fx.experimental.validator",
):
    import_module(_name)
_lazy_import()
joint_graph.lazy_init(torch.device("cpu"))  # of a GPU it would start CUDA, which bears no fork
post_grad.lazy_init()
torch_key()
try:
    from triton.runtime.cache import triton_key
except ImportError:
    pass
else:
    triton_key()
