"""What the cache holds, in the words of tables and reports (docs/words.md)."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

import torch

from ._native import _C

RIVALS = {"aten": "ATen", "inductor": "Inductor"}

NOT_CURRENT = "judged by another torch or verifier: not served, replaced when forged again"
DOUBTFUL = (
    "measured on a busy machine: used, and re-measured after a day by the next process that forges "
    "(`cudaforge forge --wanted` or `cudaforge warmup` do)"
)

_MESSAGE = 200  # characters of a verdict's message
_MOST_OPS, _MOST_SHAPES = 8, 4  # of a region in a line


class RecordSummary(TypedDict):
    """One record. Times are microseconds of one call. None: not timed."""

    key: str
    arch: str
    kind: str  # "winner" if there is a kernel
    serves: list[str]  # whose calls it serves, of "compiled" and "eager"
    ops: str  # as "mul -> cumsum"
    shapes: list[str]  # of the inputs, as "float32[8, 128]"
    verdict: str  # "winner" if it serves compiled graphs, else why not
    reason: str
    aten_us: float | None
    inductor_us: float | None
    winner_us: float | None
    speedup: list[float] | None  # low, median and high, over the faster rival
    speedup_over_aten: list[float] | None
    author: str | None
    created: int | None
    retry_above_s: float | None  # see retry_above_s()
    current: bool  # False if another torch or verifier judged it; see NOT_CURRENT
    doubtful: int  # seconds since 1970 when a busy machine measured it, else 0; see DOUBTFUL


def summary(record: Mapping[str, Any]) -> RecordSummary:
    """A record of KernelStore.get() or records(), without its source and signature."""
    timing = record["timing"] or {}
    provenance = record["provenance"] or {}
    return RecordSummary(
        key=record["key"],
        arch=record["arch"],
        kind=record["kind"],
        serves=record["serves"],
        ops=op_names(record["signature"]),
        shapes=input_shapes(record["signature"]),
        verdict=verdict(record),
        reason=reason_of(record),
        aten_us=timing.get("aten_us"),
        inductor_us=timing.get("inductor_us"),
        winner_us=timing.get("winner_us"),
        speedup=timing.get("speedup"),
        speedup_over_aten=timing.get("speedup_over_aten"),
        author=provenance.get("author"),
        created=provenance.get("created"),
        retry_above_s=retry_above_s(record),
        current=record["current"],
        doubtful=record["doubtful"],
    )


def needed_alignment(signature: Mapping[str, Any], candidate: Mapping[str, Any] | None) -> str:
    """The alignment that a kernel requires beyond that of its region's inputs: "in0 at multiples of
    64 bytes"; "" if none."""
    inputs = signature["inputs"]
    return ", ".join(
        f"in{rule['in']} at multiples of {rule['aligned']} bytes"
        for rule in (candidate or {}).get("constraints", ())
        if rule["aligned"] > inputs[rule["in"]]["alignment"]
    )


def status_text(status: str) -> str:
    """A status or a kind of records ("hit", "winner", "unused", "negative", "miss") in a text."""
    return {"negative": "no winner"}.get(status, status)


def kind_text(record: Mapping[str, Any]) -> str:
    """ "winner", "for eager" where its kernel serves eager calls alone, "no winner"."""
    return "for eager" if record["serves"] == ["eager"] else status_text(record["kind"])


def verdict(record: Mapping[str, Any]) -> str:
    """ "winner", or why there is none for compiled graphs."""
    if "compiled" in record["serves"]:
        return "winner"
    timing = record["timing"] or {}
    _, median, high = timing.get("speedup") or (1.0, 1.0, 1.0)
    unserved = record["doubtful"] and not record["serves"]
    match "doubtful" if unserved else why_code(record):
        case "doubtful":
            return "the machine was too busy for a race"
        case "not_within":
            return f"faster by itself, not within region {larger_region(record)[:12]}"
        case "not_faster" if record["serves"]:
            return f"faster than ATen, {'slower' if high < 1 else 'not surely'} than Inductor"
        case "not_faster":
            return f"nothing {'surely ' if median > 1 else ''}faster than {rival_name(timing)}"
        case "not_raced" | "out_of_time":
            return "out of time, not raced"
        case "none_right":
            return "no right candidate"
    return reason_of(record)


def why_code(record: Mapping[str, Any]) -> str:
    """Why a record serves no compiled graph, by its `why` (cache/FORMAT.md); "" of a winner."""
    return str((record["provenance"] or {}).get("why") or "")


def larger_region(record: Mapping[str, Any]) -> str:
    """Of a part that was raced inside a larger region too: that one's key, else ""."""
    within = (record["timing"] or {}).get("within")
    return within["key"] if within is not None else ""


def why(record: Mapping[str, Any]) -> str:
    """The verdict of a record, with what was measured."""
    timing = record["timing"] or {}
    if "compiled" in record["serves"] or timing.get("best_rival") is None:
        return verdict(record)
    over_aten = ""
    if record["serves"] and timing.get("speedup_over_aten"):
        over_aten = f"{speedup_text(timing, record['serves'])}; "
    return f"{verdict(record)} ({over_aten}{reason_of(record)})"


def result_text(record: Mapping[str, Any]) -> str:
    """What a record says of its region, in a line: "winner: 1.20 times as fast as ATen
    [1.15, 1.25]", "no winner: nothing faster than ATen (...); too little time"."""
    words = speedup_text(record["timing"]) if "compiled" in record["serves"] else why(record)
    said = f": {words}" if words else ""
    return with_time(f"{kind_text(record)}{said}", retry_above_s(record))


def why_no_kernel(key: str, arch: str) -> str:
    """Why calls of a region had no kernel, by its record in the cache in use; "" if it has none."""
    record = _C.store().get(key, arch)
    if record is None:
        return ""
    if reasons := not_served(summary(record)):
        return "; ".join([result_text(record), *reasons])
    if "compiled" in record["serves"]:
        return (
            "the cache has its kernel now; these calls ran without it: a new enable(), compilation "
            "or process uses it"
        )
    if record["serves"]:
        return (
            f"{result_text(record)}; eager calls ran without it: a new enable() or process uses it"
        )
    return result_text(record)


def not_served(row: RecordSummary) -> list[str]:
    """Why a record counts as a miss, in lines."""
    lines = [] if row["current"] else [NOT_CURRENT]
    return [*lines, DOUBTFUL] if row["doubtful"] else lines


def retry_above_s(record: Mapping[str, Any]) -> float | None:
    """The region_budget_s above which forging retries a region that has no winner and had too
    little time to find one; None for every other record."""
    provenance = record["provenance"] or {}
    if "compiled" in record["serves"] or not provenance.get("out_of_time"):
        return None
    return min(1.5 * float(provenance.get("budget_s") or 0.0), sys.float_info.max)


def rival_name(timing: Mapping[str, Any]) -> str:
    """The faster rival of a race, for people: "ATen"."""
    rival = timing.get("best_rival") or ""
    return RIVALS.get(rival, rival)


def interval_text(interval: Sequence[float]) -> str:
    """ "1.20 [1.15, 1.25]" of (low, median, high)."""
    low, median, high = interval
    return f"{median:.2f} [{low:.2f}, {high:.2f}]"


def speedup_text(timing: Mapping[str, Any] | None, serves: Sequence[str] = ("compiled",)) -> str:
    """ "1.20 times as fast as Inductor [1.15, 1.25]" of a record's timing, of a kernel that serves
    eager calls alone over ATen; "" without a race."""
    over_aten = (timing or {}).get("speedup_over_aten") if list(serves) == ["eager"] else None
    interval = over_aten or (timing or {}).get("speedup")
    if not timing or not interval:
        return ""
    low, median, high = interval
    rival = RIVALS["aten"] if over_aten else rival_name(timing)
    return f"{median:.2f} times as fast as {rival} [{low:.2f}, {high:.2f}]"


def stayed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Of the winner that a forging found in the cache and did not beat: author, by_agent and
    timing."""
    author = (record["provenance"] or {}).get("author")
    return {"author": author, "by_agent": record["by_agent"], "timing": record["timing"]}


def no_region(left: Collection[str]) -> str:
    """A line for a model without a region. left: why PyTorch runs parts of it, if any."""
    if set(left) - {"no_anchor"}:
        return "no region was found: PyTorch runs the parts listed below"
    return (
        "no region was found: no built-in generator makes a kernel for an operation of this model. "
        "explain(..., agents=True) lists what agents could make"
    )


def no_graph(model: object) -> str:
    """That Dynamo made no graph of a model, and why."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    recurrent = {type(m).__name__ for m in modules if isinstance(m, torch.nn.RNNBase)}
    if recurrent and not torch._dynamo.config.allow_rnn:
        return (
            f"Dynamo made no graph: it leaves code that calls torch.nn.{min(recurrent)} to eager "
            "PyTorch, unless torch._dynamo.config.allow_rnn is set"
        )
    return (
        "Dynamo made no graph: the model computes nothing with tensors, or was compiled as often "
        "as recompile_limit allows (torch._dynamo.reset() has it begin anew)"
    )


def with_time(text: str, retry_above_s: float | None) -> str:
    """What is said of a region; that it had too little time, where it had."""
    return text if retry_above_s is None else f"{text}; too little time"


def too_little_time(found: Sequence[float | None]) -> tuple[str, int] | None:
    """How many regions had too little time, in words, and the budget in whole seconds, at least the
    default, that retries them all; None if none had. `found`: retry_above_s of each region."""
    short = [above for above in found if above is not None]
    if not short:
        return None
    budget = max(math.floor(max(short)) + 1, math.ceil(_C.DEFAULT_REGION_BUDGET_S))
    return f"{counted(len(short), 'region')} had too little time", budget


def try_again(found: Sequence[float | None], setting: str) -> str | None:
    """How many of these regions had too little time, and the setting that retries them; None if
    none had. `setting`: "region_budget_s="."""
    short = too_little_time(found)
    return None if short is None else f"{short[0]}: {setting}{short[1]} or more tries again"


def reason_of(record: Mapping[str, Any]) -> str:
    """Why a record is no winner; "" of a winner. Of KernelStore.verdict() too."""
    return str((record["provenance"] or {}).get("reason") or "")


def op_names(signature: Mapping[str, Any]) -> str:
    """The ops of a signature in order, without overloads: "mul -> cumsum"."""
    return " -> ".join(
        node["op"].partition("::")[2].partition(".")[0] for node in signature["nodes"]
    )


def input_shapes(signature: Mapping[str, Any]) -> list[str]:
    """Dtype and sizes of each input: "float32[8, 128]"."""
    return [f"{spec['dtype']}{spec['sizes']}" for spec in signature["inputs"]]


def program(signature: Mapping[str, Any]) -> list[str]:
    """A signature as one line for each input and node: "%1 = aten::exp(%0) -> float32[8]"."""
    lines: list[str] = []
    made_by: list[int] = []  # outputs of each node

    def spec(tensor: Mapping[str, Any] | None) -> str:  # None: an output that is not requested
        return "None" if tensor is None else f"{tensor['dtype']}{tensor['sizes']}"

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            if "in" in value:
                return f"in{value['in']}"
            if "node" in value:
                output = f".{value['out']}" if made_by[value["node"]] > 1 else ""
                return f"%{value['node']}{output}"
            return str(next(iter(value.values())))  # a dtype, an infinity: by its name
        if isinstance(value, list):
            return f"[{', '.join(text(item) for item in value)}]"
        return "None" if value is None else str(value)

    for index, tensor in enumerate(signature["inputs"]):
        lines.append(f"in{index}: {spec(tensor)} of strides {tensor['strides']}")
    for index, node in enumerate(signature["nodes"]):
        given = [text(value) for value in node["args"]]
        given += [f"{name}={text(value)}" for name, value in node["kwargs"].items()]
        made = ", ".join(spec(tensor) for tensor in node["outputs"])
        lines.append(f"%{index} = {node['op']}({', '.join(given)}) -> {made}")
        made_by.append(len(node["outputs"]))
    lines.append(f"returns {', '.join(text(value) for value in signature['outputs'])}")
    return lines


def _facts(signature: Mapping[str, Any]) -> list[str]:
    """All that distinguishes a signature: its program, and what those lines leave out."""
    lines = program(signature)
    for index, node in enumerate(signature["nodes"]):
        strides = ", ".join(str(tensor and tensor["strides"]) for tensor in node["outputs"])
        lines.append(f"%{index} of strides {strides}")
    for index, tensor in enumerate(signature["inputs"]):
        lines.append(f"in{index} aligned to {tensor['alignment']} bytes")
    for group in signature["aliases"]:
        lines.append(f"{', '.join(f'in{index}' for index in group)} share memory")
    lines += [f"{name}: {value}" for name, value in signature["numerics"].items()]
    return lines


def differences(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
    """For each row of a table (its text for a region, the region's signature): the facts that
    distinguish it from the rows with the same text; [] if there are none."""
    facts = [_facts(signature) for _, signature in rows]
    alike: dict[str, list[list[str]]] = {}
    for (shown, _), lines in zip(rows, facts, strict=True):
        alike.setdefault(shown, []).append(lines)
    shared = {shown: set.intersection(*map(set, group)) for shown, group in alike.items()}
    return [
        [line for line in lines if line not in shared[shown]]
        for (shown, _), lines in zip(rows, facts, strict=True)
    ]


def printable(text: str, kept: str = "") -> str:
    """Text that others may have written, for a terminal: what is no printable character, and not in
    `kept`, as an escape that can be seen."""
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def clipped(message: str) -> str:
    """A message for a line of a listing: where it is long, cut at a word, with "..."."""
    if len(message) <= _MESSAGE:
        return message
    cut = message[: _MESSAGE - len(" ...") + 1]
    return f"{cut.rpartition(' ')[0] or cut[:-1]} ..."


def dollars(usd: float, unpriced: int) -> str:
    """ "$0.0120", "$0.0120 and 1 call of unknown price", "price unknown" where none is known:
    `unpriced` calls are not in `usd`."""
    if unpriced and not usd:
        return "price unknown"
    unknown = f" and {counted(unpriced, 'call')} of unknown price" if unpriced else ""
    return f"${usd:.4f}{unknown}"


def counted(number: int, what: str) -> str:
    """ "1 kernel", "2 kernels"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def label(ops: str, shapes: Sequence[str], whole: bool = False) -> str:
    """A region in one line: "mul -> cumsum(float32[8, 128], float32[128])". Unless it is to be
    whole, the middle of many ops and the last of many shapes are only counted."""
    names = ops.split(" -> ")
    if not whole and len(names) > _MOST_OPS + 1:
        around = _MOST_OPS // 2
        names[around:-around] = [f"({len(names) - 2 * around} more)"]
    given = list(shapes)
    if not whole and len(given) > _MOST_SHAPES:
        given[_MOST_SHAPES - 1 :] = [f"{len(given) - _MOST_SHAPES + 1} more"]
    return f"{' -> '.join(names)}({', '.join(given)})"


def find(key: str, arch: str) -> RecordSummary | None:
    """The record of the store that this process uses, or None."""
    record = _C.store().get(key, arch)
    return None if record is None else summary(record)
