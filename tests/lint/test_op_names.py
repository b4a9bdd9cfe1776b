"""Facts of ATen's operators are in one table: only it and the lowerings name operators."""

from __future__ import annotations

import re

from tree import ROOT, files

# "aten::softmax", also without its namespace, as a whole literal.
NAME = re.compile(r'"aten::(\w+)[\w.]*"')
COMMENT = re.compile(r"//[^\n]*|#[^\n]*|\"\"\".*?\"\"\"", re.DOTALL)
# The table; lowerings.
TABLE = "csrc/signature/op_facts.cc"
ALLOWED = (TABLE, "csrc/generators/")
# An example in a message, what prims::convert_element_type is, the smallest region there is, and
# views, which no region has.
EXAMPLES = {
    "python/cudaforge_backend/integration/eager_ops.py": {"_softmax"},
    "python/cudaforge_backend/integration/fx_signature.py": {"_to_copy"},
    "python/cudaforge_backend/integration/rivals.py": {"relu"},
    "python/cudaforge_backend/integration/sink_views.py": {
        "_unsafe_view",
        "permute",
        "reshape",
        "view",
    },
}
# The table's names that are no English words.
BARE = {
    name
    for name in re.findall(r'^    \{"(\w+)",', (ROOT / TABLE).read_text(), re.MULTILINE)
    if "_" in name
}


def named(text: str) -> set[str]:
    """The operators that code names in literals, or calls as torch.ops.aten has them."""
    code = COMMENT.sub("", text)
    called = re.findall(r"\bops\.aten\.(\w+)", code)
    return {*NAME.findall(code), *called, *(BARE & set(re.findall(r'"(\w+)"', code)))}


def test_one_table_has_the_names_of_operators() -> None:
    found = {}
    for path in files(".h", ".cc", ".py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("csrc/", "cache/", "python/")) and not name.startswith(ALLOWED):
            names = named(path.read_text()) - EXAMPLES.get(name, set())
            if names:
                found[name] = names
    assert not found, "their facts belong in csrc/signature/op_facts.cc"


def test_what_counts_as_a_name() -> None:
    assert named('f("aten::sum.dim_IntList"); // "aten::max"') == {"sum"}
    assert named('x == "masked_fill" or y == "sum"') == {"masked_fill"}
    assert named("torch.ops.aten.mm.default") == {"mm"}
    assert not named('"""Such as "aten::sum"."""\nname.startswith("aten::")  # "aten::any"')
