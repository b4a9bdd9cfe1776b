"""The C++ part (csrc/binding). Signatures are JSON text; csrc/signature/op_signature.h has the
form.

Errors: ValueError (malformed input), NotImplementedError (well formed, not handled), KeyError,
OSError, TimeoutError, and RuntimeError for what is missing on this machine and for faults of our
own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

ON_MISS: tuple[str, ...]
DEFAULT_REGION_BUDGET_S: float
LOG_TOPICS: tuple[str, ...]
DTYPES: tuple[str, ...]  # those that a signature can name, by torch's names

def configure(cuda_folders: list[str], worker: str) -> None:
    """Where CUDA's libraries and headers may be, and the worker; the environment wins."""

def config() -> dict[str, Any]:
    """The environment's settings: disabled, eager, on_miss, region_budget_s, graph_budget_s,
    cache_dir, log, warnings."""

def cuda_search_paths() -> list[str]:
    """Folders that may hold libnvrtc, libnvJitLink, libcupti and the CUDA headers, the first to
    try first."""

def worker_path() -> str: ...
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

def norm_operands(op: str) -> tuple[int, int] | None:
    """Where a norm, or its backward, has its input and its weight; None for other overloads."""

def generates_heavy_ops(arch: str) -> bool:
    """Whether a generator makes kernels for some of them on `arch`."""

def has_agent_regions(arch: str) -> bool:
    """Whether the store in use has ever held a winner of such a region for `arch`."""

def can_generate(signature: str, arch: str) -> str | None:
    """None when a generator makes kernels for the region on `arch`, else why none does."""

def numerics(ops: Sequence[str]) -> dict[str, Any]:
    """The settings in force that may change what these overloads compute."""

def normalize(signature: str) -> str:
    """The canonical form: defaults filled in, keyword-only arguments in "kwargs", keys sorted."""

def signature_key(signature: str) -> str:
    """SHA-256 of a canonical signature, 64 hexadecimal digits."""

def describe(signature: str) -> str:
    """A short line for people."""

def region_id(key: str) -> int:
    """What cudaforge::region is called with for a key."""

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

def time_interleaved(
    names: list[str], callables: Sequence[Callable[[], float]], min_rounds: int, budget_s: float
) -> PairedTimes:
    """Each callable does its work once and gives the nanoseconds that it took."""

class RegionProgram:
    """A signature made runnable by ATen, without the GIL."""

    def __init__(self, signature: str) -> None: ...
    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]: ...

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
        busy machine measured it: a miss in every other process), serves (out of "compiled" and
        "eager"), variants (of each kernel its timing and contract; timing is the first one's),
        binary_bytes, checksum; None on a miss, and, counted in `corrupt`, where the
        evidence is damaged."""

    def verdict(self, key: str, arch: str) -> dict[str, Any] | None:
        """kind, checksum, serves and, of what serves no compiled graph, provenance of what `get`
        gives; cheap. None on a miss, for what other versions judged or another process under doubt,
        and for damaged evidence of what serves no compiled graph."""

    def doubted_lately(self, key: str, arch: str) -> bool:
        """Whether another process measured it under doubt, less than a day ago."""

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

    def add_wanted(self, regions: Sequence[tuple[str, str, str]]) -> None:
        """Key, arch and canonical signature of each; one write at most."""

    def put_graph(
        self,
        graph: str,
        arch: str,
        facts: Mapping[str, Any],
        wanted: Sequence[tuple[str, str, str]] = ...,
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
    file: str, tell: Callable[[str, str], None] | None = None, replace: bool = False
) -> dict[str, Any]:
    """Compiles and proves each kernel of a pack here and stores it as soon as it is proven, unless
    the store has as good a kind of one that this build judged, or with `replace`; what has none is
    stored at the end. As export_pack.

    `tell` gets the key of each kernel and what is wrong with it ("": nothing). RuntimeError: not a
    pack, or a damaged one."""

def store() -> KernelStore:
    """The store that this process uses: in memory until use_cache has been called."""

def use_cache(folder: str) -> str | None:
    """Uses the cache in `folder` from now on; why it cannot be (the store is then in memory), or
    None."""

class SearchOutcome:
    """What a search ended with; `reason` says why nothing was found, or why it ended."""

    @property
    def found(self) -> bool: ...
    @property
    def reason(self) -> str: ...

class NoReply(RuntimeError):
    """No reply of the Coder has a candidate, or there is none: nothing is known of the region."""

class Cancel:
    """Ends a session of agents from another thread."""

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

def read_triton(reply: str, signature: str, arch: str, program: list[str]) -> str:
    """For tests: the candidate, as JSON, that a Coder's reply in Triton comes to. ValueError says
    why it is none."""

def agents(
    signature: str,
    device_index: int,
    settings: Mapping[str, Any],
    built_in: SearchOutcome | None,
    cancel: Cancel,
    hints: Callable[[], list[str]] | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> SearchOutcome:
    """One session of agents, without the GIL; `settings` are those of agents.Agents.settings().
    Every node is stored as soon as it is finished. Raises ValueError for settings that cannot be
    used, before any call is made, and NoReply where no candidate was tried for want of a reply
    that has one."""

class Promotion:
    """The result of a race."""

    @property
    def promoted(self) -> bool:
        """Whether it serves compiled graphs."""
    @property
    def eager(self) -> bool:
        """Whether it serves eager calls."""

    def times_us(self) -> list[float]:
        """Median microseconds of each contestant."""

    def placed_in(self, key: str, inside: Promotion) -> Promotion:
        """The verdict on a part of the region `key`, which must win alone and inside it."""

def search(
    signature: str,
    device_index: int,
    seconds: float,
    limit: float,
    candidates: int,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> SearchOutcome:
    """Tries candidates in the worker process, without the GIL, for `seconds` from the call on.
    Nothing begins, the verification of the best neither, that would end after `limit` seconds, as
    far as is known by what the same took before."""

def race(
    names: list[str],
    callables: Sequence[Callable[[int], object]],
    device: str,
    device_index: int,
    budget_s: float,
    clock: Callable[[Callable[[], None]], float] | None = None,
    one_call: bool = False,
) -> Promotion:
    """Interleaved timing of callables, the winner-to-be first, rivals named "aten" and "inductor".

    A callable gets the sample's number. `clock` gives the nanoseconds of one call of work with
    caches cold; None: the target's own clock. `one_call`: an eager call may be all of it."""

def conclude(
    signature: str,
    device_index: int,
    outcome: SearchOutcome,
    promotion: Promotion | None,
    budget_s: float,
    spent_s: float,
    busy: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Stores the record: a kernel where `promotion` says that it serves somebody, else a negative
    entry; doubtful where the machine was `busy` or the race contradicts itself. The times are those
    of the whole region, allowed and spent. Gives the record as KernelStore.get would, and whether
    it is now the one that is stored."""

class KernelOnTrial:
    """While it is entered, cudaforge::region runs the search's best in this thread's OwnWork, and
    for nobody else."""
    def __init__(self, signature: str, device_index: int, outcome: SearchOutcome) -> None: ...
    def __enter__(self) -> KernelOnTrial: ...
    def __exit__(self, *error: object) -> None: ...
    def promote(self, compiled: bool, eager: bool) -> None:
        """Has it serve compiled graphs, eager calls or both from now on, in this process."""

def ask_again() -> None:
    """Has regions without a winner look for one in the store again, at their next call."""

def stats() -> dict[str, Any]:
    """hits, unserved, fallbacks by reason, saved_ns, regions."""

def reset_stats() -> None: ...
def can_intercept(op: str) -> str | None:
    """None when calls of the overload can be intercepted, else why not."""

def out_variant_of(op: str) -> str | None:
    """The overload that writes what `op` returns to out arguments; None where there is none."""

def intercept(ops: Sequence[str]) -> None:
    """Intercepts eager calls of exactly these overloads."""

def intercepted() -> list[str]:
    """The overloads that are intercepted."""

def on_eager_miss(record: bool, told: Callable[[str, str, str, int], None] | None) -> None:
    """What becomes of a call that is met for the first time and has no kernel, not while a CUDA
    graph is captured: where `record`, it is put on the wanted list; `told` is called with its
    signature, its key, the architecture and the device's index."""

def record_unaligned(record: bool) -> None:
    """Whether regions whose data no kernel can use, as they are not aligned, are put on the wanted
    list, by this process alone."""

def flush_eager_misses() -> None:
    """Waits until every recorded miss is on the wanted list."""

def end_eager_misses() -> None:
    """The same, as the process ends: later ones are written at once."""

def eager_stats() -> dict[str, Any]:
    """calls, hits, fallbacks, misses by reason, of each overload that had calls."""

def reset_eager_stats() -> None: ...

class OwnWork:
    """While it is entered, calls of this thread are neither intercepted nor counted. A thread
    enters its own."""
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

class NoForkMeanwhile:
    """While it is entered, until the thread that has entered it leaves it, forks in other threads
    wait: no_fork_meanwhile() in forks.py. An error: left by a thread that is not inside."""
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

def before_fork(most_s: float = 60.0) -> bool:
    """Around a fork: waits until no other thread is inside a NoForkMeanwhile, so long at most;
    False: one is inside yet. No other gets inside until after_fork_in_parent() or
    after_fork_in_child(), or for a minute. Runs no signal's handler."""

def after_fork_in_parent() -> None:
    """Nothing, where no before_fork() of this thread came before."""

def after_fork_in_child() -> None:
    """Nobody is inside who does not exist in the child, and no fork is under way."""

def amid_fork() -> bool:
    """Whether the calling thread is between before_fork() and what comes after the fork."""

def versions() -> dict[str, Any]:
    """cudaforge, torch, verifier, rocksdb."""
