"""What the source of a kernel may name, call and write."""

from __future__ import annotations

import ast
import re

# What a kernel may call as tl.NAME. Not here: what prints, makes types from texts (str_to_ty
# evaluates one), tensor descriptors, and every module.
TL_CALLS = frozenset(
    """abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas
    atomic_max atomic_min atomic_or atomic_xchg atomic_xor broadcast broadcast_to cast cat cdiv ceil
    clamp constexpr cos cumprod cumsum debug_barrier div_rn dot dot_scaled erf exp exp2 expand_dims
    fdiv flip floor fma full gather histogram inline_asm_elementwise interleave join load log log2
    make_block_ptr map_elementwise max max_constancy max_contiguous maximum min minimum mul
    multiple_of num_programs pair_uniform_to_normal permute philox pointer_type program_id rand
    rand4x randint randint4x randn randn4x ravel reduce reduce_or reshape rsqrt sigmoid sin softmax
    sort split sqrt sqrt_rn static_assert store sub sum swizzle2d topk trans uint_to_uniform_float
    umulhi view where xor_sum zeros zeros_like""".split()
)
TL_VALUES = frozenset(
    """bfloat16 float16 float32 float64 float8e4b15 float8e4nv float8e5 int1 int16 int32 int64 int8
    uint16 uint32 uint64 uint8""".split()
)
MATH_CALLS = frozenset(
    """abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn
    umulhi""".split()
)
TAKE_FUNCTIONS = frozenset(("associative_scan", "map_elementwise", "reduce"))
LOOPS = frozenset(("range", "tl.range", "tl.static_range"))
PROPERTIES = frozenset(
    "T dtype element_ty itemsize numel primitive_bitwidth scalar shape type value".split()
)
METHODS = frozenset(
    """abs argmax argmin broadcast_to cast ceil cos cumprod cumsum erf exp exp2 expand_dims flip
    floor is_bf16 is_block is_floating is_fp16 is_fp32 is_fp64 is_int is_int1 is_int32 is_int64
    is_ptr item log log2 logical_and logical_or max min permute ravel reshape rsqrt sigmoid sin
    softmax sort split sqrt sqrt_rn sum to trans view xor_sum""".split()
)
# Keyword arguments that take a text, and the pattern of that text.
TEXTS = frozenset(
    """cache_modifier eviction_policy fp_downcast_rounding input_precision lhs_format padding_option
    rhs_format scope sem""".split()
)
TEXT = re.compile(r"[a-z0-9_.]{0,24}")
INFINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
# PTX that would leave the function that contains the inline assembly.
DIRECTIVE = re.compile(
    r"(?<![\w.])\.(address_size|alias|entry|extern|file|func|loc|section|target|version|visible|"
    r"weak)\b"
)
# What Triton finds without a definition, and what the source imports: not to be redefined.
RESERVED = frozenset(
    """float getattr hasattr int isinstance len list max min print range tl triton""".split()
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor),
)
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)
