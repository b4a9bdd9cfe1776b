"""Why PyTorch ran something in place of a kernel, and what became of graphs. Each value is also its
name in JSON; docs/words.md explains all of them."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why PyTorch ran a call, a part of a graph, or a whole graph."""

    # Calls: the kernel does not take these inputs, or cannot run now. Counted in C++ (Fallback in
    # csrc/dispatch/resolver.h).
    DEVICE = "device"
    STRIDES = "strides"
    ALIGNMENT = "alignment"
    NUMERICS = "numerics"
    LABELS = "labels"
    NO_MEMORY = "no_memory"
    LAUNCH_ERROR = "launch_error"
    QUARANTINED = "quarantined"

    # Graphs and parts of graphs that cannot be regions.
    DYNAMIC_SHAPE = "dynamic_shape"
    NO_KERNEL_GENERATOR = "no_kernel_generator"
    UNSUPPORTED_OP = "unsupported_op"
    UNSUPPORTED_ARGUMENT = "unsupported_argument"
    UNSUPPORTED_DTYPE = "unsupported_dtype"
    COMPLEX_DTYPE = "complex_dtype"
    MIXED_DTYPES = "mixed_dtypes"
    TENSOR_SUBCLASS = "tensor_subclass"
    SPARSE_LAYOUT = "sparse_layout"
    LAZY_CONJUGATE = "lazy_conjugate"
    NOT_A_TENSOR = "not_a_tensor"
    ABSENT_OUTPUT = "absent_output"
    TOO_MANY_DIMENSIONS = "too_many_dimensions"
    NO_TENSOR_INPUTS = "no_tensor_inputs"
    MIXED_DEVICES = "mixed_devices"
    UNSUPPORTED_DEVICE = "unsupported_device"
    DEFAULT_DTYPE = "default_dtype"
    CPP_WRAPPER = "cpp_wrapper"
    CUSTOM_GRAPH_PASS = "custom_graph_pass"
    NO_ANCHOR = "no_anchor"

    # Regions that were not forged, and failures.
    LITTLE_TO_GAIN = "little_to_gain"
    GRAPH_BUDGET = "graph_budget"
    NO_MEMORY_TO_VERIFY = "no_memory_to_verify"
    NO_REPLY = "no_reply"
    FORGE_FAILED = "forge_failed"
    BACKGROUND_FAILED = "background_failed"
    BACKEND_FAILED = "backend_failed"
    GATE_FAILED = "gate_failed"
    SWAP_FAILED = "swap_failed"
    NOT_RECORDED = "not_recorded"


class Status(StrEnum):
    """What the cache knows of a region of a graph."""

    HIT = "hit"  # has a kernel
    UNUSED = "unused"  # has a kernel, but the graph runs without it (explain() only)
    NEGATIVE = "negative"  # forged without a winner; eager calls may have a kernel
    SKIPPED = "skipped"  # not forged: little can be gained
    MISS = "miss"  # not forged yet


class GraphOutcome(StrEnum):
    """What became of a graph."""

    SUBSTITUTED = "substituted"  # runs with kernels
    PLAIN = "plain"  # Inductor alone compiled it
    NO_ANCHOR = "no_anchor"  # nothing in it can have a kernel
    SWAPPED = "swapped"  # was given kernels while it ran (on_miss="background")
    DOES_NOT_PAY = "does_not_pay_in_place"  # no faster with its kernels: Inductor's code runs
    EAGER = "eager"  # fastest as eager runs it; never where gradients are needed
    NOT_USED = "winners_not_used"  # the compiled graph has other strides, or lost the regions


class Way(StrEnum):
    """A way to run a graph; readers of stored records skip names that they do not know."""

    INDUCTOR = "inductor"
    EAGER = "eager"
    KERNELS = "kernels"


class Phase(StrEnum):
    """Where the time of making kernels goes."""

    START = "start"  # the verifier starts and takes its memory
    INPUTS = "inputs"  # they are drawn, with ATen's answers
    COMPILE = "compile"  # candidates
    RUN = "run"  # candidates
    COMPARE = "compare"  # candidates' outputs with ATen's
    RIVAL = "rival"  # Inductor compiles regions
    RACE = "race"  # the best candidate against ATen and Inductor
    GRAPH = "graph"  # the ways to run the graph are compiled and timed


class EagerMiss(StrEnum):
    """Why a call of an operator that enable() looks up had no kernel. Counted in C++ (Miss in
    csrc/dispatch/intercepted_op.h)."""

    NEW = "new"  # first call with these shapes
    NO_KERNEL = "no_kernel"  # none was forged yet, or none won
    UNSUPPORTED = "unsupported"  # no signature holds the call, or the default dtype is not float32
    CAPTURE = "capture"  # first call with these shapes was inside the capture of a CUDA graph
    TOO_MANY = "too_many"  # too many different shapes were seen
