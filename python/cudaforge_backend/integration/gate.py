"""The gate: times the ways to run a graph, and serves the fastest. The ways: Inductor's code, the
same with winners in place and, for inference, eager.

A kernel that wins alone may lose in place, because Inductor no longer fuses its neighbours. The
verdict is stored under the graph's name for later processes."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from cudaforge_backend import measure
from cudaforge_backend._native import _C
from cudaforge_backend.forks import fork_safe_lock
from cudaforge_backend.reasons import GraphOutcome, Phase, Reason, Way
from cudaforge_backend.stats import (
    GraphWay,
    Spent,
    count_fallback,
    count_graph,
    count_graph_gain,
    note_way,
    spending,
    timing_phase,
    warn_once,
)

from .analysis import Analysis, is_training
from .clocks import DAY_S
from .graphs import Compiled, device_of, graph_name
from .outcome import Outcome
from .telling import telling

SECONDS = 1.5  # of timing, unless calls are slow
_MOST_SECONDS = 30.0  # then; or half of the graph's budget if that is less
_ROUNDS = 10
_LEAST_ROUNDS = 5
_OF_ONCE = 1.1  # how surely the ratio of two single calls is known
_WARM_UP_ROUNDS = 2  # of measure.time_interleaved
_OF_FORWARD = 3  # times its forward's time a training graph takes: a backward has two gradients
_MOST_SIZES = 4  # of inputs that are named
_PURE = ("aten", "prims")  # operators that do nothing but give results


WAYS = tuple(Way)  # each one must surely be faster than those before it to be served
_CONTROL = "control"  # Inductor's way a second time

Speedup = tuple[float, float, float]  # low, median, high: of the 95% interval
Overs = Mapping[Way, Mapping[Way, Speedup]]  # the speed-up over others


class Verdict(NamedTuple):
    """The result of timing a graph."""

    fastest: Way
    regions: frozenset[str]  # keys of the winners that ran; empty: the compiled graph used none
    speedup: Speedup | None = None  # with winners, over the faster of the other ways
    ms: Mapping[Way, float] = {}  # of one call
    sizes: tuple[str, ...] = ()  # of the inputs, as "float32[8, 128]"
    stale: bool = False  # measured on a busy machine, more than a day ago
    overs: Mapping[Way, Mapping[Way, Speedup]] = {}  # the speed-up of each way over others
    doubtful: bool = False  # measured on a busy machine
    control: Speedup | None = None  # Inductor's way over itself; None: calls took seconds

    def way(self) -> GraphWay:
        """For stats() and explain()."""
        over = _over_others(self.overs, self.fastest)
        return GraphWay(
            self.fastest, dict(self.ms), list(self.sizes), over, self.control, self.doubtful
        )


def name_of(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    winners: Mapping[str, str],
    inductor: Mapping[str, Any],
) -> str:
    """The name of a graph with these winners (key to checksum) and options of Inductor. Inference
    and training have different names."""
    facts = (is_training(inputs), sorted(winners.items()), sorted(inductor.items()))
    return graph_name(gm, inputs, facts)


def fastest_of(overs: Overs, ms: Mapping[Way, float]) -> Way:
    """The way that is faster by its interval and by its median in `ms`; otherwise Inductor's. If
    the two disagree, other work disturbed the timing."""
    best = Way.INDUCTOR
    for name in WAYS[1:]:
        speedup = overs.get(name, {}).get(best)
        slower = name in ms and best in ms and ms[name] >= ms[best]
        if speedup is not None and gains(speedup) and not slower:
            best = name
    return best


def _over_others(overs: Overs, way: Way) -> Speedup | None:
    """The speed-up of a way over the faster of the others; None for Inductor's."""
    over = overs.get(way, {})
    return min(over.values(), key=lambda speedup: speedup[1]) if over else None


def _overs_in(alternatives: Sequence[object]) -> dict[Way, dict[Way, Speedup]]:
    """The speed-ups in a stored record; malformed entries are skipped."""
    overs: dict[Way, dict[Way, Speedup]] = {}
    for alternative in alternatives:
        match alternative:
            case {"name": str() as name, "over": {**over}} if name in WAYS:
                found = overs[Way(name)] = {}
                for other, stored_over in over.items():
                    speedup = _speedup_in(stored_over)
                    if speedup is not None and str(other) in WAYS:
                        found[Way(str(other))] = speedup
    return overs


def _speedup_in(value: object) -> Speedup | None:
    match value:
        case [float() as low, float() as median, float() as high]:
            return low, median, high
    return None


def stored(name: str, arch: str) -> Verdict | None:
    """The verdict on a graph, None where there is none."""
    found = _C.store().get_graph(name, arch)
    if found is None or not isinstance(found.get("alternatives"), list):
        return None
    overs = _overs_in(found["alternatives"])
    ms = {
        Way(alternative["name"]): alternative["ms"]
        for alternative in found["alternatives"]
        if isinstance(alternative, dict)
        and alternative.get("name") in WAYS
        and isinstance(alternative.get("ms"), float)
    }
    regions, sizes = (map(str, found.get(of) or ()) for of in ("regions", "sizes"))
    doubted = found.get("doubtful")
    return Verdict(
        fastest=fastest_of(overs, ms),
        regions=frozenset(regions),
        speedup=_over_others(overs, Way.KERNELS),
        ms=ms,
        sizes=tuple(sizes),
        stale=isinstance(doubted, int) and time.time() - doubted > DAY_S,
        overs=overs,
        doubtful=isinstance(doubted, int),
        control=_speedup_in(found.get("control")),
    )


def note_not_used(name: str, arch: str) -> None:
    """Stores that the compiled graph does not use its winners: its strides differ from the plan's,
    or it lost the regions."""
    _store(name, arch, {"alternatives": [], "regions": []})


def _store(name: str, arch: str, verdict: Mapping[str, Any]) -> None:
    try:
        _C.store().put_graph(name, arch, verdict)
    except Exception as error:
        count_fallback(Reason.NOT_RECORDED)
        warn_once(f"whether a graph's winners pay in place is not recorded: {error}")


def obstacle(gm: fx.GraphModule, analysis: Analysis, inductor: Mapping[str, Any]) -> str:
    """Why a graph cannot be run extra times for timing; "" if it can.

    - CUDA-graph trees keep the addresses of their inputs.
    - Tensors that the graph holds are not copied: writes to them would repeat in every round.
    - Custom operators and collectives may have effects outside."""
    from torch._inductor import config

    if inductor.get("triton.cudagraphs", config.triton.cudagraphs):
        return "CUDA graphs"
    if any(True for _ in gm.parameters()) or any(True for _ in gm.buffers()):
        return "it holds tensors of its own"
    if analysis.writes_to_leaf:
        return "it writes to an input that requires grad"
    for target in analysis.targets():
        if isinstance(target, torch._ops.HigherOrderOperator):
            return f"it calls {target}"
        if isinstance(target, torch._ops.OpOverload) and target.namespace not in _PURE:
            return f"it calls {target}"
    return ""


def draws_random_numbers(analysis: Analysis) -> bool:
    """Whether eager and Inductor would draw different numbers."""
    return any(
        isinstance(target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in target.tags
        for target in analysis.targets()
    )


def gains(speedup: Speedup) -> bool:
    """Whether a speed-up is sure."""
    return speedup[0] > 1.0


class GatedCallable:
    """Times the ways to run a graph at its first call, on copies of that call's inputs. Every call
    then runs the fastest way. The verdict is stored, unless the graph has winners and none of them
    ran during the timing: then the next process repeats it. `outcome`: of the winners; None without
    any. Thread-safe."""

    def __init__(
        self,
        name: str,
        arch: str,
        regions: Sequence[str],
        ways: Mapping[Way, Compiled],
        outcome: Outcome | None,
        spent: Spent,
        budget_s: float = 2 * _MOST_SECONDS,
    ) -> None:
        self._name = name
        self._arch = arch
        self._regions = sorted(regions)
        self._outcome = outcome
        self._spent = spent
        self._most_s = min(_MOST_SECONDS, budget_s / 2)
        self._ways = dict(ways)
        self._chosen: Compiled | None = None
        self._lock = fork_safe_lock()

    def __call__(self, *inputs: Any) -> Any:
        chosen = self._chosen
        if chosen is None:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                chosen = self._ways.get(Way.KERNELS, self._ways[Way.INDUCTOR])
            else:
                chosen = self._choose(inputs)
        return chosen(*inputs)

    def _choose(self, inputs: Sequence[Any]) -> Compiled:
        with self._lock:
            if self._chosen is None:
                self._chosen = self._ways[self._fastest(inputs)]
                self._ways = {Way.INDUCTOR: self._chosen}
            return self._chosen

    def _fastest(self, inputs: Sequence[Any]) -> Way:
        try:
            with (
                telling("race", self._regions, self._name),
                spending(self._spent),
                timing_phase(Phase.GRAPH),
            ):
                times, doubtful, served = self._race(inputs)
        except Exception as error:
            count_fallback(Reason.GATE_FAILED)
            warn_once(f"a graph could not be timed and runs as Inductor compiles it: {error}")
            if self._outcome is not None:
                self._outcome.become(GraphOutcome.PLAIN)
            return Way.INDUCTOR
        names = [name for name in WAYS if name in self._ways]
        if self._outcome is not None and not served:
            self._outcome.become(GraphOutcome.NOT_USED)
            if self._outcome.is_lost():
                note_not_used(self._name, self._arch)
            names.remove(Way.KERNELS)
        overs = {
            name: {other: times.speedup(other, name) for other in names[:at]}
            for at, name in enumerate(names)
        }
        ms = {name: times.median_ms(name) for name in names}
        fastest = fastest_of(overs, ms)
        doubtful |= fastest != fastest_of(overs, {})
        if self._outcome is None or served:
            alternatives = [{"name": name, "ms": ms[name], "over": overs[name]} for name in names]
            sizes, control = _sizes(inputs), _control_of(times)
            verdict = {"alternatives": alternatives, "regions": served, "sizes": sizes}
            if control is not None:
                verdict["control"] = control
            if doubtful:
                verdict["doubtful"] = int(time.time())
            _store(self._name, self._arch, verdict)
            over = _over_others(overs, fastest)
            note_way(GraphWay(fastest, ms, sizes, over, control, doubtful))
            self._count(fastest, _over_others(overs, Way.KERNELS))
        return fastest

    def _count(self, fastest: Way, speedup: Speedup | None) -> None:
        if fastest == Way.KERNELS and speedup is not None:
            count_graph_gain(speedup)
        elif self._outcome is not None:
            is_eager = fastest == Way.EAGER
            self._outcome.become(GraphOutcome.EAGER if is_eager else GraphOutcome.DOES_NOT_PAY)
        elif fastest == Way.EAGER:
            count_graph(GraphOutcome.PLAIN, -1)
            count_graph(GraphOutcome.EAGER)

    def _race(self, inputs: Sequence[Any]) -> tuple[measure.Times | _Once, bool, list[str]]:
        """The times, whether other programs disturbed them, and keys of the kernels that ran."""
        before = _own_hits()
        load = _C.MachineLoad()
        with _C.OwnWork():
            times = _race(self._ways, inputs, self._most_s)
        if device_of(inputs).type == "cpu":
            doubtful = load.was_disturbed()
        else:
            doubtful = isinstance(times, measure.Times) and times.paired.interrupted()
        after = _own_hits()
        return times, doubtful, [key for key in self._regions if after[key] > before[key]]


def time_compiled(compiled: Compiled, inputs: Sequence[Any], training: bool) -> float | None:
    """Microseconds of the fastest warm call. For training: an estimate from the forward, because
    the first backward would wait for Dynamo's lock, which the caller's thread holds. None: other
    programs kept the processor busy."""
    device = device_of(inputs)
    load = _C.MachineLoad()
    with _C.OwnWork(), _alone(inputs) as mine:
        step = functools.partial(_step, compiled, mine)
        fastest = measure.fastest_ms(step, device, budget_s=0.3)
    if device.type == "cpu" and load.was_disturbed():
        return None
    return fastest * 1e3 * (_OF_FORWARD if training else 1)


def _sizes(inputs: Sequence[Any]) -> list[str]:
    """Dtype and sizes of the first inputs that are no parameters."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor) and not _is_parameter(v)]
    named = [f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for v in tensors]
    return named[:_MOST_SIZES]


def _is_parameter(value: torch.Tensor) -> bool:
    return isinstance(value, torch.nn.Parameter) or value.requires_grad


def _own_hits() -> Counter[str]:
    """Calls made inside _C.OwnWork that kernels served so far, by region."""
    found: Counter[str] = Counter()
    for region in _C.stats().get("regions", ()):
        found[region["key"]] += region["own_hits"]
    return found


@dataclass(frozen=True)
class _Once:
    """Stands for measure.Times where calls take seconds: one call of each way."""

    ms: Mapping[Way, float]

    def median_ms(self, name: Way) -> float:
        return self.ms[name]

    def speedup(self, base: Way, name: Way) -> Speedup:
        ratio = self.ms[base] / self.ms[name]
        return ratio / _OF_ONCE, ratio, ratio * _OF_ONCE


def _control_of(times: measure.Times | _Once) -> Speedup | None:
    return times.speedup(Way.INDUCTOR, _CONTROL) if isinstance(times, measure.Times) else None


def _race(
    ways: Mapping[Way, Compiled], inputs: Sequence[Any], most_s: float
) -> measure.Times | _Once:
    device = device_of(inputs)
    with _alone(inputs) as mine:
        steps = {name: _first_step(way, mine) for name, way in ways.items()}
        once = {name: measure.once_ms(step, device) for name, step in steps.items()}
        rounds = rounds_within(most_s, (sum(once.values()) + once[Way.INDUCTOR]) / 1e3)
        if rounds < _LEAST_ROUNDS:
            return _Once(once)
        timed: dict[str, measure.Call] = dict(steps) | {_CONTROL: steps[Way.INDUCTOR]}
        return measure.time_interleaved(timed, device, min(rounds, _ROUNDS), min(SECONDS, most_s))


def _first_step(way: Compiled, inputs: Sequence[Any]) -> functools.partial[None]:
    """A step of `way`, run once. The first run compiles the backward with retain_graph=True, so
    that the program may use that later. A backward from PyTorch's cache may have been compiled
    without it, and then runs without it."""
    step = functools.partial(_step, way, inputs, [])
    try:
        step()
    except RuntimeError as error:
        if "donated buffers" not in str(error):
            raise
        step = functools.partial(_step, way, inputs, [], retain=False)
        step()
    return step


def rounds_within(seconds: float, round_s: float) -> int:
    """How many rounds of `round_s` seconds fit, after the warm-up rounds."""
    return int(seconds / max(round_s, 1e-6)) - _WARM_UP_ROUNDS


@contextmanager
def _alone(inputs: Sequence[Any]) -> Iterator[list[Any]]:
    """Copies of the inputs. Runs on them change no random state and call no hooks outside."""
    device = device_of(inputs)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), _unseen_by_hooks():
        yield copies(inputs)


def _unseen_by_hooks() -> Any:
    """The caller's saved-tensor hooks (activation checkpointing, offloading) see nothing inside.
    Detached: an output that is saved as it is holds itself and all else that is saved for good."""
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t)


def copies(inputs: Sequence[Any]) -> list[Any]:
    """Copies of `inputs` with the same sizes, strides, offsets, shared storages and addresses
    modulo 512 bytes: kernels take the same path for both. Tensors that require grad are not copied:
    they share the caller's memory, without its hooks."""
    ranges: dict[int, tuple[int, int]] = {}  # by storage: the bytes that inputs reach
    for value in inputs:
        if isinstance(value, torch.Tensor) and not value.requires_grad:
            begin, end = _byte_range(value)
            low, high = ranges.get(value.untyped_storage().data_ptr(), (begin, end))
            ranges[value.untyped_storage().data_ptr()] = (min(begin, low), max(end, high))
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: torch.Tensor) -> torch.Tensor:
        if value.requires_grad:
            return value.detach().requires_grad_()
        old = value.untyped_storage()
        begin, end = ranges[old.data_ptr()]
        if old.data_ptr() not in storages:
            held = torch.empty(0, dtype=torch.uint8, device=value.device)
            storages[old.data_ptr()] = _copy_of(held.set_(old, begin, (end - begin,), (1,)))
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        offset = value.storage_offset() - begin // value.element_size()
        return empty.set_(storages[old.data_ptr()], offset, value.size(), value.stride())

    return [copy(v) if isinstance(v, torch.Tensor) else v for v in inputs]


_ALIGNMENT = 512  # bytes: of what the allocators of CPU and GPU give; copies keep inputs' own


def _copy_of(data: torch.Tensor) -> torch.UntypedStorage:
    """The same bytes, at the same address modulo _ALIGNMENT."""
    room = torch.empty(data.numel() + _ALIGNMENT, dtype=torch.uint8, device=data.device)
    at = (data.data_ptr() - room.data_ptr()) % _ALIGNMENT
    place = room[at : at + data.numel()].copy_(data)
    return torch.utils.dlpack.from_dlpack(place).untyped_storage()  # which begins at the place


def _byte_range(value: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor's elements use; the start is rounded down."""
    extent = sum((int(n) - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
    begin = int(value.storage_offset()) * value.element_size()
    end = begin + (extent * value.element_size() if value.numel() else 0)
    return begin // _ALIGNMENT * _ALIGNMENT, end


def _step(
    compiled: Compiled,
    inputs: Sequence[Any],
    grads: list[torch.Tensor] | None = None,
    *,
    retain: bool = True,
) -> None:
    """A call; with `grads` also its backward. Drawing them takes as long as a small step: the first
    call fills an empty list."""
    outputs = compiled(*inputs)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    heads = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    if grads is not None and heads and leaves:
        # Not ones: behind a normalisation their gradients would be zero, and products of zeros are
        # faster than others.
        grads += [torch.randn_like(o) for o in heads[len(grads) :]]
        torch.autograd.grad(heads, leaves, grads, retain_graph=retain, allow_unused=True)
