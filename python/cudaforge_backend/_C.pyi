"""The C++ part (csrc/binding). csrc/signature/op_signature.h has the form of signatures.

Errors: ValueError (malformed input), NotImplementedError (well formed, not handled), KeyError,
OSError, TimeoutError, and RuntimeError for what is missing on this machine and for faults of our
own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

ON_MISS: tuple[str, ...]
DEFAULT_REGION_BUDGET_S: float
LOG_TOPICS: tuple[str, ...]
DTYPES: tuple[str, ...]  # those that a signature can name, by torch's names

def configure(cuda_folders: list[str], programs: str, torch: str) -> None:
    """Where CUDA's libraries and headers may be; the folder of the worker and the verifier, and
    that of libtorch. The environment wins."""

def config() -> dict[str, Any]:
    """The environment's settings: disabled, eager, on_miss ("" where it is not given),
    region_budget_s, graph_budget_s, cache_dir, log, warnings."""

def cuda_search_paths() -> list[str]:
    """Folders that may hold libnvrtc, libnvJitLink, libcupti and the CUDA headers, the first to
    try first."""

def worker_path() -> str: ...
def verifier_path() -> str: ...
def prepare_verifier(device: str, device_index: int) -> None:
    """Starts the verifier of a device, if none waits, and does not wait for it to come up."""

def verifier_waits(device: str, device_index: int) -> bool:
    """Whether there is a verifier of the device that no region is open in."""

def end_waiting_verifiers() -> None:
    """Ends the verifiers that no region is open in, and gives their memory back."""

def anchor_ops() -> list[str]:
    """Overloads that may be a region's heavy part: "aten::_softmax"."""

def pointwise_ops() -> list[str]:
    """Overloads that may join a region before or after its anchor."""

def heavy_ops() -> list[str]:
    """Heavy overloads, which agents make kernels for, and generators some: "aten::mm"."""

def anchor_words() -> list[str]:
    """Parts of the names by which functions, modules and Dynamo's graphs call what becomes an
    anchor: "softmax"."""

def parts_of(op: str) -> list[str]:
    """What PyTorch calls in place of an overload that is made of others, where that is known:
    ["aten::_softmax"] for "aten::softmax.int"."""

def region_op(op: str) -> str:
    """The call that an overload is a kernel for: "aten::scaled_dot_product_attention" for
    attention's; other overloads themselves."""

def norm_operands(op: str) -> tuple[int, int] | None:
    """Where a norm, or its backward, has its input and its weight; None for other overloads."""

def generates_heavy_ops(arch: str) -> bool:
    """Whether a generator makes kernels for some of them on `arch`."""

def has_agent_regions(arch: str) -> bool:
    """Whether the store in use has ever held a winner of such a region for `arch`."""

def numerics(ops: Sequence[str]) -> dict[str, Any]:
    """The settings in force that may change what these overloads compute."""

def region_id(key: str) -> int:
    """What cudaforge::region_v1 is called with for a key."""

class Signature:
    """What a region computes. Immutable; equal and hashed by its key."""

    @staticmethod
    def parse(text: str) -> Signature:
        """Of JSON, canonical or not."""

    def normalized(self) -> Signature:
        """Defaults filled in, keyword-only arguments in "kwargs"."""

    @property
    def text(self) -> str:
        """Canonical JSON, which cudaforge::region_v1 is called with."""

    @property
    def key(self) -> str:
        """SHA-256 of the text, 64 hexadecimal digits."""

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""

    @property
    def ops(self) -> tuple[str, ...]:
        """The overload of each node, in order: "aten::_softmax"."""

    @property
    def inputs(self) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]:
        """Dtype, sizes and strides of each."""

    @property
    def bytes(self) -> tuple[int, int]:
        """Of all inputs and of all outputs, with gaps between elements."""

    @property
    def input_roles(self) -> list[tuple[str, int]]:
        """Of each input what its values may be: "value", "index" (labels too: whole numbers from 0
        to below the second number), "positive", "probability", "log_probability" or "tanh"."""

    def describe(self) -> str:
        """A short line for people."""

    def to_dict(self) -> dict[str, Any]:
        """What the text says, as Python objects."""

    def floor_us(self, facts: Mapping[str, Any]) -> float:
        """The least microseconds of one call on a device of these device_facts()."""

    def why_not_generated(self, arch: str) -> str | None:
        """Why no generator makes kernels for it on `arch`; None where one does."""

def arch(device: str, device_index: int = 0) -> str:
    """ "cpu:x86-64-v4+1f0c93ab", "cuda:sm_90a". RuntimeError: what is missing here."""

def capabilities() -> list[dict[str, Any]]:
    """What this machine has and lacks: dicts of name, state ("ok", "missing" or "broken"), detail,
    advice ("" where it is ok)."""

class PairedTimes:
    """Times of interleaved rounds, in nanoseconds. KeyError: no contestant has that name."""

    def median_ns(self, name: str) -> float: ...
    def speedup(self, base: str, name: str) -> tuple[float, float, float]:
        """time(base) / time(name): low, median, high of the 95% interval."""

    def interrupted(self) -> bool:
        """Whether more than a tenth of the runs took at least twice their median."""

class MachineLoad:
    """What other programs take of the processor, from its making on."""

    def __init__(self) -> None: ...
    def was_disturbed(self) -> bool: ...

def device_facts(device: str, device_index: int) -> dict[str, Any]:
    """What a device is and measurably does (csrc/target/target.h, Facts): measured by the first
    call in a process, in less than two seconds; and "alone": whether no other forge of the machine
    was timing. Raises RuntimeError for what this machine lacks."""

def time_interleaved(
    names: list[str], callables: Sequence[Callable[[], float]], min_rounds: int, budget_s: float
) -> PairedTimes:
    """Each callable does its work once and gives the nanoseconds that it took."""

class RegionProgram:
    """A signature made runnable by ATen, without the GIL."""

    def __init__(self, signature: Signature) -> None: ...
    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]: ...

class RegionLock:
    def release(self) -> None: ...

class KernelStore:
    """Winners, negative entries, wanted signatures and lineage in one folder. Thread-safe."""

    @staticmethod
    def open(folder: str, writable: bool = False) -> KernelStore: ...
    @staticmethod
    def in_memory() -> KernelStore:
        """For tests."""

    def get(self, key: str, arch: str) -> dict[str, Any] | None:
        """kind ("winner", "negative"), key, arch, signature, verification, timing, provenance,
        versions, by_agent (whether an agent wrote its best candidate), current (whether this
        build's torch and verifier judged it: what others judged is a miss), doubtful (0, or when a
        busy machine measured it), serves (out of "compiled" and
        "eager"), variants (of each kernel its timing and contract; timing is the first one's),
        binary_bytes, checksum; None on a miss, and, counted in `corrupt`, where the
        evidence is damaged."""

    def verdict(self, key: str, arch: str) -> dict[str, Any] | None:
        """kind, checksum, serves and, of what serves no compiled graph, provenance of what `get`
        gives; cheap; and stale, whether it is to be measured again, as another process measured it
        on a busy machine more than a day ago. None on a miss, for what other versions judged, and
        for damaged evidence of what serves no compiled graph."""

    def lock_region(self, key: str, arch: str, seconds: float) -> RegionLock | None:
        """Of the processes that have the folder in use, one forges a region: until release(). None:
        another one still does after so many seconds. Where no file can be locked, all may."""

    def candidate(self, key: str, arch: str) -> dict[str, Any] | None:
        """Source, plan and constraints of the first kernel; None of a negative entry, and where the
        text is no JSON. KeyError: no record."""

    def binary(self, key: str, arch: str) -> bytes:
        """For tests."""

    def put(
        self,
        record: Mapping[str, Any],
        candidate: Mapping[str, Any] | None,
        binary: bytes,
        replace: bool = False,
    ) -> None:
        """For tests: a record as `get` gives it."""

    def delete(self, key: str, arch: str) -> None: ...
    def remove_wanted(self, key: str, arch: str) -> None: ...
    def records(self, arch: str = "") -> list[dict[str, Any]]:
        """All that can be read, as `get` gives them; the others are counted in `corrupt`."""

    def add_wanted(self, regions: Sequence[tuple[Signature, str]]) -> None:
        """Each on an architecture; one write at most."""

    def put_graph(
        self,
        graph: str,
        arch: str,
        facts: Mapping[str, Any],
        wanted: Sequence[tuple[Signature, str]] = ...,
    ) -> None:
        """Stores what is known of a whole graph; `graph` is a SHA-256. One write, in which `wanted`
        is put on the wanted list as well."""

    def get_graph(self, graph: str, arch: str) -> dict[str, Any] | None: ...
    def wanted(self, arch: str = "") -> list[dict[str, Any]]: ...
    def lineage(self, key: str, arch: str) -> list[dict[str, Any]]: ...
    def counters(self) -> dict[str, int]:
        """reads, hits, writes, corrupt, errors."""

    def location(self) -> str: ...
    def health(self) -> str | None:
        """None, or why every read is a miss at present."""

    def take_warnings(self) -> list[str]: ...

def export_pack(store: KernelStore, file: str, arch: str = "") -> dict[str, Any]:
    """Writes the records to one file. Counts: exported and imported (kernels), without_winner,
    kept_existing, rejected; problems has a line for each that was rejected."""

def export_sources(store: KernelStore, folder: str, arch: str = "") -> dict[str, Any]:
    """Writes the kernels as a source pack: how many, and what could not be written."""

def adopt_pack(
    file: str, tell: Callable[[str, str], object] | None = None, replace: bool = False
) -> dict[str, Any]:
    """Compiles and proves each kernel of a pack here and stores it as soon as it is proven, unless
    the store has as good a kind of one that this build judged, or with `replace`; what has none is
    stored at the end. As export_pack.

    `tell` gets "stored" or "kept" (what is there stays) and the first digits of the key of each
    kernel, "rejected" and the line in `problems` of each other record. RuntimeError: not a pack, or
    a damaged one."""

def store() -> KernelStore:
    """The store that this process uses: in memory until use_cache has been called."""

def use_cache(folder: str) -> str | None:
    """Uses the cache in `folder` from now on; why it cannot be (the store is then in memory), or
    None."""

class NoReply(RuntimeError):
    """No reply of the Coder has a candidate, or there is none: nothing is known of the region."""

class Cancel:
    """Ends a search from another thread."""

    def set(self) -> None: ...

def providers_help() -> str:
    """The providers there are, a text of two columns."""

def provider_variables() -> list[str]:
    """Of the environment, what providers read: addresses and keys."""

def strategies() -> list[str]:
    """The rules by which agents go on, the usual one first."""

def agent_limits() -> dict[str, Any]:
    """What a session may spend where nothing is said: rounds, seconds, tokens, usd."""

def check_agents(settings: Mapping[str, Any]) -> None:
    """Raises ValueError or OSError where agents() could not ask the agents of these settings."""

def read_triton(reply: str, signature: Signature, arch: str, program: list[str]) -> str:
    """For tests: the candidate, as JSON, that a Coder's reply in Triton comes to. ValueError says
    why it is none."""

Contestant = Callable[[Sequence[Tensor]], object]

class _Turn(Protocol):
    left_s: float  # at most, for the region

    def end(self) -> None: ...

class _ForgeHost(Protocol):
    """What a forge asks of the program around it, from the thread that called forge_region, inside
    it. What it raises ends the forging and passes through."""

    def tell(self, event: dict[str, Any]) -> None: ...
    def take_turn(self, race: bool) -> _Turn | None:
        """Waits until no other forge of the same graph judges or races on the device."""

    def go_on(self) -> None:
        """Before each step: raises where the forging is to end."""

    def inputs(self, signature: Signature, seed: int) -> Sequence[Tensor]:
        """On the region's device. Contestants of the region run on several such sets by turns."""

    def winner(self, signature: Signature) -> Contestant:
        """The region by cudaforge::region_v1, which runs the kernel on trial in this thread."""

    def aten(self, signature: Signature) -> Contestant: ...
    def inductor(
        self, signature: Signature, part: str, left_s: float
    ) -> tuple[Contestant | None, bool, float]:
        """The region by Inductor, with the operator for the part of that key (""
        for none), where `left_s` is enough for the compilation: the contestant, None where Inductor
        cannot compile it; whether there was time; and seconds that were no time of the region's."""

    def clock(self) -> Callable[[Callable[[], None], Sequence[Any]], float] | None:
        """Nanoseconds of one call with nothing in the caches but the tensors that are given with
        it; None: the device's own clock."""

    def is_busy(self) -> bool:
        """Whether the program keeps the processor busy beside this, which makes times doubtful."""

def race_input_sets(signature: Signature) -> int:
    """How many sets of its inputs a race of the region goes round."""

def forge_region(
    signature: Signature,
    device_index: int,
    host: _ForgeHost,
    budget_s: float,
    candidates: int,
    cancel: Cancel,
    within: Signature | None = None,
    agents: Mapping[str, Any] | None = None,
    hints: Callable[[], list[str]] | None = None,
    search_s: float | None = None,
) -> tuple[dict[str, Any], bool, dict[str, float]]:
    """Forges a region within `budget_s` seconds: at most so many candidates of the generators, in
    `search_s` of them (None: all but what the races need), then agents (settings of
    agents.Agents.settings()) within limits of their own, the race against ATen and Inductor, and
    the record, which goes to the store in use at the call. `within`: the larger region that this is
    a part of, where it must win too. `cancel` ends a search soon. Without the GIL. Gives the record
    as KernelStore.get would, whether it is now the one that is stored, and the seconds that were
    spent, by phase (stats.GraphSpent).

    Raises NotImplementedError where no generator makes the region and there are no agents,
    ValueError for settings of agents that cannot be used, before any call is made, NoReply where no
    candidate was tried for want of a reply that has one, RuntimeError for what this machine
    lacks."""

def ask_again() -> None:
    """Has regions without a winner look for one in the store again, at their next call."""

def stats() -> dict[str, Any]:
    """hits, unserved, fallbacks by reason, saved_ns, regions, prepared (stats.Stats), and eager:
    calls, hits, fallbacks and misses by reason, of each overload that had calls."""

def weights_changed() -> int:
    """Makes the kept forms of frozen weights from their present values; how many. RuntimeError:
    some could not be made, or a CUDA graph is being captured."""

def reset_stats() -> None: ...
def why_not_intercepted(op: str) -> str | None:
    """Why calls of the overload cannot be intercepted; None where they can."""

def intercept(ops: Sequence[str]) -> None:
    """Intercepts eager calls of exactly these overloads."""

def intercepted() -> list[str]:
    """The overloads that are intercepted."""

def on_eager_miss(record: bool, told: Callable[[Signature, str, int], None] | None) -> None:
    """What becomes of a call that is met for the first time and has no kernel, not while a CUDA
    graph is captured: where `record`, it is put on the wanted list; `told` is called with its
    signature, the architecture and the device's index."""

def record_unaligned(record: bool) -> None:
    """Whether regions whose data no kernel can use, as they are not aligned, are put on the wanted
    list, by this process alone."""

def flush_eager_misses() -> None:
    """Waits until every recorded miss is on the wanted list."""

def end_eager_misses() -> None:
    """The same, as the process ends: later ones are written at once."""

class OwnWork:
    """While it is entered, calls of this thread are neither intercepted nor counted. A thread
    enters its own."""
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

def versions() -> dict[str, Any]:
    """cudaforge, torch, verifier, rocksdb."""
