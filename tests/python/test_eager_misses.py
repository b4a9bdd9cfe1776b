"""What becomes of eager calls that have no kernel yet: the wanted list, on_miss="blocking" and
"background", and failures."""

from __future__ import annotations

import logging
import pickle
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NoReturn

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend import CudaForgeWarning, disable, enable
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.integration import forging, plan
from eager_calls import SOFTMAX, seen
from forged import join_threads, lose_every_race, win_every_race


def test_a_miss_is_put_on_the_wanted_list_once(tmp_path: Path) -> None:
    x = torch.randn(4, 30)
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        for _ in range(3):
            x.softmax(-1)
    assert seen().misses == {"new": 1, "no_kernel": 2}
    (wanted,) = _C.KernelStore.open(str(tmp_path)).wanted()
    assert [node["op"] for node in wanted["signature"]["nodes"]] == [SOFTMAX]


def test_enable_ends_while_calls_miss(tmp_path: Path) -> None:
    options = {"on_miss": "record", "cache_dir": str(tmp_path)}
    ended = threading.Event()

    def miss() -> None:
        size = 2
        while not ended.wait(0.002):
            torch.zeros(3, 1, 1, size).softmax(-1)  # a shape of no other test
            size += 1

    enable([SOFTMAX], **options)
    before = seen().misses.get("new", 0)
    thread = threading.Thread(target=miss)
    thread.start()
    deadline = time.monotonic() + 60
    while seen().misses.get("new", 0) < before + 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    enabling = threading.Thread(target=enable, args=([SOFTMAX, "aten::mm"],), kwargs=options)
    enabling.start()
    enabling.join(timeout=20)
    hung = enabling.is_alive()
    ended.set()
    thread.join()
    enabling.join()
    disable()
    assert not hung and seen().misses["new"] >= before + 20
    wanted = _C.KernelStore.open(str(tmp_path)).wanted()
    assert len(wanted) == seen().misses["new"] - before


def test_a_miss_is_a_region_without_a_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_python: RunPython
) -> None:
    x = torch.randn(4, 53)
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        for _ in range(2):
            x.softmax(-1)
    assert cudaforge_backend.stats().misses == 1
    code = f"FOLDER = {str(tmp_path)!r}{_TWICE}"
    assert run_python(code, ready=True).stdout.split() == ["1", "0", "1"]
    assert run_python(code, ready=True).stdout.split() == ["0", "0", "0"]


@pytest.mark.parametrize(
    ("columns", "other"),
    [
        (71, {"versions": {**_C.versions(), "torch": "0"}}),
        (72, {"versions": {**_C.versions(), "verifier": 0}}),
        (73, {"doubtful": 1_700_000_000}),
        (74, {}),
    ],
)
def test_regions_judged_by_another_torch_return_to_the_wanted_list(
    columns: int, other: dict[str, Any], tmp_path: Path
) -> None:
    """What another torch or verifier judged is a miss; what a process measured on a busy machine
    long ago is none."""
    x = torch.randn(4, columns)
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path / "first")):
        x.softmax(-1)
    (wanted,) = _C.KernelStore.open(str(tmp_path / "first")).wanted()
    record = {
        "kind": "negative", "key": wanted["key"], "arch": wanted["arch"],
        "signature": wanted["signature"], "verification": None, "timing": None,
        "provenance": {"reason": "a test"}, "versions": _C.versions(),
    }  # fmt: skip
    cache = _C.KernelStore.open(str(tmp_path / "second"), True)
    cache.put({**record, **other}, None, b"")
    cudaforge_backend.reset_stats()
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path / "second")):
        x.softmax(-1)
    assert cudaforge_backend.stats().misses == int("versions" in other)
    assert [one["key"] for one in cache.wanted()] == [wanted["key"]] * bool(other)


_TWICE = """
import pytest, torch, cudaforge_backend
from forged import lose_every_race
lose_every_race(pytest.MonkeyPatch())
with cudaforge_backend.enable(["aten::_softmax"], on_miss="blocking", cache_dir=FOLDER):
    torch.randn(4, 53).softmax(-1)
seen = cudaforge_backend.stats()
print(seen.misses, seen.forged, seen.negative)
"""


def test_blocking_says_what_it_does_and_what_came_of_it(
    blocking: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cudaforge.forge"), enable([SOFTMAX], **blocking):
        torch.randn(7, 53).softmax(-1)
    first, last = [r.getMessage() for r in caplog.records if r.name == "cudaforge.forge"]
    assert first.startswith("forging a kernel for _softmax(float32[7, 53]), at most ")
    assert last.startswith("forged 1 region (parts count as regions): 1 winner, ")


def test_background_makes_the_kernel_that_later_calls_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    win_every_race(monkeypatch)
    x = torch.randn(16, 54)
    expected = x.softmax(-1)
    with enable([SOFTMAX], on_miss="background", cache_dir=str(tmp_path)):
        x.softmax(-1)
        join_threads("cudaforge-eager")
        torch.testing.assert_close(x.softmax(-1), expected)
    assert seen().hits == 1
    assert _C.KernelStore.open(str(tmp_path)).wanted() == []


_IN_BACKGROUND = """
import threading, time, torch, cudaforge_backend
from cudaforge_backend.integration import forging
begins, ends = threading.Event(), threading.Event()
def run(forge):
    begins.set()
    ends.wait(60)
    time.sleep(2.5)  # a step that sees no end of the program
    raise RuntimeError("a test")
forging._Forge.run = run
with cudaforge_backend.enable(["aten::_softmax"], on_miss="background", cache_dir=FOLDER):
    for columns in (53, 54):
        torch.randn(4, columns).softmax(-1)
    assert begins.wait(60)
    print(cudaforge_backend.stats())
ends.set()
"""


def test_background_says_what_it_does(run_python: RunPython, tmp_path: Path) -> None:
    """In the statistics, and where the program's end waits for it."""
    shown = run_python(f"FOLDER = {str(tmp_path)!r}\n" + _IN_BACKGROUND)
    assert shown.stdout.count("  missed: kernels are being made in the background (") == 1
    assert "on_miss=" not in shown.stdout
    (ended,) = shown.stderr.splitlines()
    assert ended.startswith("cudaforge: the program has ended; the current step is finished first")


def test_statistics_say_why_calls_have_no_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lose_every_race(monkeypatch)
    x = torch.randn(6, 55)
    with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
        x.softmax(-1)
        cudaforge_backend.reset_stats()
        x.softmax(-1)
    stats = cudaforge_backend.stats()
    text = str(stats)
    assert str(pickle.loads(pickle.dumps(stats))) == text
    assert "regions: 0 missed, 0 forged to a winner, 0 to no winner\n" in text
    _, why = text.split("  _softmax(float32[6, 55])\n")
    assert why.strip().startswith("no winner: nothing faster than ATen (0.")


def test_statistics_say_that_calls_ran_before_their_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        for _ in range(2):
            torch.randn(6, 56).softmax(-1)
    _, why = str(cudaforge_backend.stats()).split("  _softmax(float32[6, 56])\n")
    assert why.splitlines()[0].strip() == "no record in the cache in use"
    assert main(["forge", "--wanted", "--cache-dir", str(tmp_path)]) == 0
    _, why = str(cudaforge_backend.stats()).split("  _softmax(float32[6, 56])\n")
    assert why.strip().startswith("the cache has its kernel now; these calls ran without it: ")
    with enable([SOFTMAX], cache_dir=str(tmp_path)):
        torch.randn(6, 56).softmax(-1)
    (region,) = [r for r in cudaforge_backend.stats().regions if "[6, 56]" in r.region]
    assert region.hits == 1


@pytest.mark.parametrize("failing", ["forging", "thread"])
def test_background_goes_on_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    win_every_race(monkeypatch)
    failures = ["a test"]

    def fail_once(real: Any) -> Any:
        def once(*args: Any, **kwargs: Any) -> Any:
            if failures:
                raise RuntimeError(failures.pop())
            return real(*args, **kwargs)

        return once

    where, name = (plan, "forge_one") if failing == "forging" else (threading.Thread, "start")
    monkeypatch.setattr(where, name, fail_once(getattr(where, name)))
    what = "forging in the background failed" if failing == "forging" else "recorded or forged"
    rows = 27 if failing == "forging" else 28
    with enable([SOFTMAX], on_miss="background", cache_dir=str(tmp_path)):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            torch.randn(rows, 38).softmax(-1)
            join_threads("cudaforge-eager")
        told = [str(one.message) for one in warned if one.category is CudaForgeWarning]
        assert [what in text and "a test" in text for text in told] == [True]
        torch.randn(rows, 39).softmax(-1)
        join_threads("cudaforge-eager")
    # Where there was no thread, the first one has waited for the second.
    assert stored(tmp_path) == ((1, 1) if failing == "forging" else (2, 0))


def test_a_rival_that_the_programs_end_takes_away_has_not_lost(
    run_python: RunPython, tmp_path: Path
) -> None:
    done = run_python(f"FOLDER = {str(tmp_path)!r}{_ENDS}")
    assert done.stderr == ""
    assert stored(tmp_path) == (0, 1)


def test_a_thread_that_outlives_the_main_one_goes_on(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(f"FOLDER = {str(tmp_path)!r}{_OUTLIVES}")
    assert done.stdout == "no kernel 2\n" and done.stderr == ""


_OUTLIVES = """
import threading, torch, cudaforge_backend
cudaforge_backend.enable(["aten::_softmax"], on_miss="blocking", cache_dir=FOLDER)
def work():
    threading.main_thread().join()
    x = torch.randn(4, 77)
    eager = x.softmax(-1)
    torch.testing.assert_close(x.double().softmax(-1).float(), eager)
    stats = cudaforge_backend.stats()
    assert not stats.fallbacks, stats
    print("no kernel", stats.misses)
threading.Thread(target=work).start()
"""


_ENDS = """
import threading, torch, cudaforge_backend
from cudaforge_backend.integration import rivals
races = threading.Event()
def inductor_call(*_):
    races.set()
    threading.main_thread().join()
    raise RuntimeError("cannot schedule new futures after interpreter shutdown")
rivals.inductor_call = inductor_call
cudaforge_backend.enable(["aten::_softmax"], on_miss="background", cache_dir=FOLDER)
torch.randn(256, 254).softmax(-1)
assert races.wait(60)
"""


def stored(folder: Path) -> tuple[int, int]:
    """The number of regions with records in a cache, and the length of its wanted list."""
    store = _C.KernelStore.open(str(folder))
    return len(store.records()), len(store.wanted())


@pytest.mark.parametrize(("after", "rows"), [("disabled", 23), ("same", 25), ("other", 26)])
def test_a_background_queue_ends_with_what_it_was_made_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: str, rows: int
) -> None:
    win_every_race(monkeypatch)
    races, go = threading.Event(), threading.Event()
    real = forging._Forge.inductor

    def inductor(forge: Any, *given: Any) -> Any:
        races.set()
        assert go.wait(60)
        return real(forge, *given)

    monkeypatch.setattr(forging._Forge, "inductor", inductor)
    first, second = tmp_path / "first", tmp_path / "second"
    with enable([SOFTMAX], on_miss="background", cache_dir=str(first)):
        torch.randn(rows, 38).softmax(-1)
        assert races.wait(60)
        torch.randn(rows, 39).softmax(-1)
    if after != "disabled":
        folder = first if after == "same" else second
        enable(["aten::mm"], on_miss="fallback", cache_dir=str(folder))
    go.set()
    join_threads("cudaforge-eager")
    assert stored(first) == ((0, 2) if after == "other" else (1, 1))
    assert after != "other" or stored(second) == (0, 0)
    assert cudaforge_backend.stats().fallbacks == {}


def test_a_kernel_in_a_race_serves_no_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x = torch.randn(16, 70)
    served: list[int] = []

    def race(self: Any, *_: Any) -> Any:
        in_its_thread = torch.softmax(x, -1)  # its own work: neither intercepted nor counted
        thread = threading.Thread(target=lambda: [x.softmax(-1) for _ in range(5)])
        thread.start()
        thread.join()
        assert in_its_thread.shape == x.shape
        served.append(seen().hits)
        return None, False, 0.0  # no time for it

    monkeypatch.setattr(forging._Forge, "inductor", race)
    before = seen().hits
    with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
        x.softmax(-1), x.softmax(-1)
    assert served == [before]
    assert seen().hits == before


def test_an_interrupt_while_forging_is_the_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "forge_region", interrupted)
    x = torch.randn(5, 71)
    with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
        with pytest.raises(KeyboardInterrupt):
            x.softmax(-1)
        assert torch.equal(x.softmax(-1), torch._softmax(x, -1, False))


def out_of_order(*arguments: Any, **named: Any) -> NoReturn:
    raise RuntimeError("out of order")


def test_an_exception_while_a_warning_is_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(plan, "forge_one", out_of_order)
    monkeypatch.setattr(warnings, "showwarning", out_of_order)
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    x = torch.randn(5, 81)
    with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
        assert torch.equal(x.softmax(-1), torch._softmax(x, -1, False))
    (one,) = reported
    assert one.exc_type is RuntimeError and one.object == "cudaforge warning"


def test_an_interrupt_while_a_warning_is_written_reaches_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The warning is written inside a C++ call, which cannot raise."""
    monkeypatch.setattr(plan, "forge_one", out_of_order)
    monkeypatch.setattr(
        warnings, "showwarning", lambda *_, **__: signal.raise_signal(signal.SIGINT)
    )
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
            with pytest.raises(KeyboardInterrupt):
                torch.randn(5, 80).softmax(-1)
                time.sleep(20)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_new_on_miss_applies_to_shapes_seen_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    win_every_race(monkeypatch)
    x = torch.randn(5, 72)
    with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):
        x.softmax(-1)
    assert _C.KernelStore.open(str(tmp_path)).wanted() == []
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        x.softmax(-1)
    assert len(_C.KernelStore.open(str(tmp_path)).wanted()) == 1
    with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
        before = seen().hits
        x.softmax(-1), x.softmax(-1)
        assert seen().hits == before + 1


def test_a_failure_of_forging_is_only_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(_C, "forge_region", fail)
    warnings: list[str] = []
    monkeypatch.setattr(plan, "warn_once", lambda text, cause: warnings.append(text))
    x = torch.randn(5, 31)
    expected = x.softmax(-1)
    with enable([SOFTMAX], on_miss="blocking", cache_dir=str(tmp_path)):
        for _ in range(2):
            torch.testing.assert_close(x.softmax(-1), expected)
    assert len(warnings) == 1 and "no compiler" in warnings[0]
    assert cudaforge_backend.stats().fallbacks == {"forge_failed": 1}
