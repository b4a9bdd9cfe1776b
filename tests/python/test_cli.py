"""The `cudaforge` command: what it prints, as text and as JSON, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import sysconfig
from collections import Counter
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from command import Output, as_json, cells, refusal
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.cli.stores import normalized
from cudaforge_backend.records import input_shapes
from eager_calls import SOFTMAX
from forged import compiled, win_every_race


def test_doctor_names_every_part(capsys: Output) -> None:
    checks = {check["name"]: check for check in as_json(capsys, "doctor")}
    assert {
        "torch",
        "environment",
        "worker",
        "verifier",
        "host compiler",
        "cpu counters",
        "isolation",
        "driver",
        "gpu",
        "nvrtc",
        "nvjitlink",
        "cupti",
        "Python.h",
        "cache",
    } == set(checks)
    for check in checks.values():
        assert check["ok"] == (check["state"] == "ok")
        assert bool(check["advice"]) == (check["state"] in ("missing", "broken")), check
    assert _C.versions()["rocksdb"] in checks["cache"]["detail"]


def test_doctor_says_that_no_header_of_python_is_there(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    checks = {check["name"]: check for check in as_json(capsys, "doctor")}
    assert checks["Python.h"]["state"] == "missing" and "-dev" in checks["Python.h"]["advice"]


def test_doctor_as_text(capsys: Output) -> None:
    assert main(["doctor"]) == 0
    printed = capsys.readouterr()
    assert "RocksDB" in printed.out and "looking at compilers" in printed.err


@pytest.mark.parametrize("program", ["worker", "verifier"])
def test_doctor_fails_without_a_program(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(_C, f"{program}_path", lambda: "/nowhere/program")
    assert main(["doctor"]) == 1
    assert ["missing", program, "/nowhere/program"] in [
        [*row[:2], row[2].splitlines()[0]] for row in cells(capsys.readouterr().out)
    ]


def test_doctor_distinguishes_broken_from_missing(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker").write_text("no program")
    monkeypatch.setattr(_C, "worker_path", lambda: str(tmp_path / "worker"))
    assert main(["doctor", "--cache-dir", "/dev/null/x"]) == 1
    states = {name: state for state, name, _ in cells(capsys.readouterr().out)}
    assert (states["worker"], states["cache"]) == ("broken", "broken")


def test_doctor_has_a_line_for_each_problem_of_the_environment(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ["CUDAFORGE_X=1 is not used", "CUDAFORGE_Y=2 is not used"]
    settings = {**_C.config(), "warnings": wrong}
    monkeypatch.setattr(_C, "config", lambda: settings)
    main(["doctor"])
    (row,) = (row for row in cells(capsys.readouterr().out) if row[1] == "environment")
    *lines, advice = row[2].splitlines()
    assert row[0] == "broken" and lines == wrong and advice


@pytest.mark.parametrize("verb", [["doctor"], ["cache", "ls"]], ids=" ".join)
def test_warnings_about_the_environment_are_printed_once(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: list[str]
) -> None:
    settings = {**_C.config(), "warnings": ["CUDAFORGE_X=1 is not used"]}
    monkeypatch.setattr(_C, "config", lambda: settings)
    main([*verb, "--cache-dir", str(tmp_path)])
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("CUDAFORGE_X=1 is not used") == 1


def native(name: str, state: str) -> dict[str, str]:
    advice = "" if state == "ok" else f"install {name}"
    return {"name": name, "state": state, "detail": "what was found", "advice": advice}


@pytest.mark.parametrize("library", ["nvrtc", "nvjitlink", "cupti"])
@pytest.mark.parametrize(
    ("driver", "found", "told"),
    [
        ("ok", "ok", "ok"),
        ("ok", "missing", "missing"),
        ("ok", "broken", "broken"),
        ("missing", "ok", "ok"),
        ("missing", "missing", "not used"),
        ("broken", "missing", "not used"),
        ("missing", "broken", "not used"),
    ],
)
def test_a_library_that_no_driver_uses(
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    driver: str,
    found: str,
    told: str,
) -> None:
    parts = [native("host compiler", "ok"), native("driver", driver), native(library, found)]
    monkeypatch.setattr(_C, "capabilities", lambda: parts)
    checks = {c["name"]: c for c in as_json(capsys, "doctor")}
    assert (checks["driver"]["state"], checks[library]["state"]) == (driver, told)
    assert bool(checks[library]["advice"]) == (told in ("missing", "broken"))
    absent = checks[library]["detail"].startswith("not there")
    assert absent == (told == "not used" and found == "missing")


@pytest.mark.parametrize("state", ["missing", "broken"])
def test_doctor_fails_without_a_compiler_and_not_without_counters(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    for name, code in (("host compiler", 1), ("cpu counters", 0)):
        found = [native(name, state), native("driver", "ok")]
        monkeypatch.setattr(_C, "capabilities", lambda found=found: found)
        checks = {c["name"]: c for c in as_json(capsys, "doctor", code=code)}
        assert {**native(name, state), "ok": False} == checks[name]


def test_a_driver_that_does_not_load_is_broken(run_python: RunPython, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    paths = [str(tmp_path), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    done = run_python(
        "from cudaforge_backend.cli import main; main(['doctor', '--json'])",
        LD_LIBRARY_PATH=os.pathsep.join(paths),
    )
    checks = {c["name"]: c for c in json.loads(done.stdout)}
    assert checks["driver"]["state"] == "broken", checks["driver"]
    assert (checks["gpu"]["state"], checks["gpu"]["advice"]) == ("missing", "see driver")


def test_an_empty_cache(capsys: Output, tmp_path: Path) -> None:
    folder = ("--cache-dir", str(tmp_path / "none"))
    assert as_json(capsys, "cache", "ls", *folder) == []
    assert as_json(capsys, "cache", "stats", *folder)["archs"] == {}
    assert main(["cache", "ls", *folder]) == 0
    assert "there is no cache in" in capsys.readouterr().out
    assert "no record starts with 'abc'" in refusal(capsys, "cache", "show", "abc", *folder)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("verb", ["ls", "stats", "export", "import", "show"])
def test_a_plain_file_is_no_cache_and_stays_as_it_is(
    capsys: Output, tmp_path: Path, verb: str
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("mine")
    argument = {"export": [str(tmp_path / "p")], "import": [str(tmp_path / "p")], "show": ["a"]}
    line = refusal(capsys, "cache", verb, *argument.get(verb, []), "--cache-dir", str(plain))
    assert str(plain) in line
    assert plain.read_text() == "mine"


def test_doctor_names_a_folder_that_cannot_be_used(capsys: Output) -> None:
    checks = as_json(capsys, "doctor", "--cache-dir", "/dev/null/x", code=1)
    (cache,) = (check for check in checks if check["name"] == "cache")
    assert (
        not cache["ok"]
        and "/dev/null" in cache["detail"]
        and "CUDAFORGE_CACHE_DIR" in (cache["advice"])
    )


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_doctor_tries_to_write(capsys: Output) -> None:
    checks = as_json(capsys, "doctor", "--cache-dir", "/proc/cudaforge", code=1)
    (cache,) = (check for check in checks if check["name"] == "cache")
    assert not cache["ok"] and "/proc takes no writes" in cache["detail"]
    checks = as_json(capsys, "doctor", "--cache-dir", "/proc/self")  # there, and read-only
    (cache,) = (check for check in checks if check["name"] == "cache")
    assert cache["ok"] and "read-only" in cache["detail"]


def test_a_misspelt_variable_is_named(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(
        "import sys; from cudaforge_backend.cli import main;"
        f" sys.exit(main(['cache', 'ls', '--cache-dir', {str(tmp_path / 'none')!r}]))",
        CUDAFORGE_CACHE_DIRS="/x",
        ready=True,
    )
    assert "CUDAFORGE_CACHE_DIRS" in done.stderr and "there is no cache in" in done.stdout


def test_an_export_of_nothing_says_why(capsys: Output, tmp_path: Path) -> None:
    folder = ("--cache-dir", str(tmp_path / "none"))
    data = as_json(capsys, "cache", "export", str(tmp_path / "p"), *folder, code=1)
    assert data["exported"] == 0 and "there is no cache in" in data["reason"]


def test_an_empty_listing_names_the_wanted_regions(capsys: Output, tmp_path: Path) -> None:
    with cudaforge_backend.enable(["aten::_softmax"], on_miss="record", cache_dir=str(tmp_path)):
        torch.randn(4, 44).softmax(-1)
    folder, arch = ("--cache-dir", str(tmp_path)), _C.arch("cpu")
    for options, has in [((), "no records"), (("--arch", arch), f"no records for {arch}")]:
        assert main(["cache", "ls", *folder, *options]) == 0
        said = f"{has}; 1 region is wanted, see `cudaforge cache wanted`\n"
        assert capsys.readouterr().out.endswith(said)


def test_export_into_no_folder(capsys: Output, tmp_path: Path) -> None:
    file = str(tmp_path / "none" / "x.pack")
    line = refusal(capsys, "cache", "export", file, "--cache-dir", str(tmp_path / "cache"))
    assert f"cannot write {file}: there is no folder" in line


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1)


def test_stats_counts_winners_regions_without_and_wanted_ones(
    capsys: Output, tmp_path: Path, forged: Path
) -> None:
    for columns in (41, 42, 43):
        compiled(model, forged)(torch.randn(4, columns))
        torch._dynamo.reset()
    source, store = _C.KernelStore.open(str(forged)), _C.KernelStore.open(str(tmp_path), True)
    shown = [["float32[4, 41]"], ["float32[4, 42]"], ["float32[4, 43]"]]
    of = {tuple(input_shapes(r["signature"])): r for r in source.records()}
    won, lost, asked = (of[tuple(shapes)] for shapes in shown)
    place = (won["key"], won["arch"])
    binary = source.binary(*place)
    store.put(won, source.candidate(*place), binary)
    store.put({**lost, "kind": "negative"}, None, b"")
    store.add_wanted([(normalized(asked["signature"]), asked["arch"])])
    del store
    folder = ("--cache-dir", str(tmp_path))
    data = as_json(capsys, "cache", "stats", *folder)
    counts = {"winners": 1, "negatives": 1, "bytes": len(binary), "not_current": 0}
    counts["doubtful"] = 0
    assert data["archs"] == {won["arch"]: counts} and data["wanted"] == 1
    assert main(["cache", "stats", *folder]) == 0
    location, of_arch, asked_for, _ = cells(capsys.readouterr().out)
    assert (location, of_arch[0]) == ([data["location"]], won["arch"])
    assert re.findall(r"\d+", of_arch[1]) == ["1", "1", str(len(binary))]
    assert asked_for[0] == "wanted" and "cudaforge forge --wanted" in asked_for[1]


def test_stats_of_an_empty_wanted_list_name_no_command(capsys: Output, tmp_path: Path) -> None:
    assert main(["cache", "stats", "--cache-dir", str(tmp_path)]) == 0
    assert ["wanted", "0"] in cells(capsys.readouterr().out)


def test_wanted_lists_the_requested_regions(capsys: Output, tmp_path: Path) -> None:
    folder = ["--cache-dir", str(tmp_path)]
    for columns in (18, 19):
        options = {"on_miss": "record", "cache_dir": str(tmp_path)}
        torch._dynamo.reset()
        torch.compile(model, backend="cudaforge", options=options)(torch.randn(4, columns))
    rows = as_json(capsys, "cache", "wanted", *folder)
    assert [row["signature"]["inputs"][0]["sizes"] for row in rows] == [[4, 18], [4, 19]]
    assert main(["cache", "wanted", *folder]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(rows[0]["key"][:12]) and first.endswith("softmax(float32[4, 18])")
    assert second.startswith(rows[1]["key"][:12])
    assert as_json(capsys, "cache", "wanted", "--arch", "cuda:sm_90a", *folder) == []


def test_show_names_every_time_and_the_source(capsys: Output, forged: Path) -> None:
    compiled(model, forged)(torch.randn(4, 20))
    folder = ["--cache-dir", str(forged)]
    keys = {row["key"]: row["shapes"] for row in as_json(capsys, "cache", "ls", *folder)}
    key = next(key for key, shapes in keys.items() if shapes == ["float32[4, 20]"])
    assert main(["cache", "show", key, *folder]) == 0
    text = capsys.readouterr().out
    fields = dict(cells(text))
    assert (fields["region"], fields["key"]) == ("mul -> _softmax(float32[4, 20])", key)
    assert fields["device"].startswith("cpu:") and fields["Inductor"] == "not timed"
    assert fields["ATen"].endswith(" us") and fields["kernel"].endswith(" us")
    assert {"made", "speed-up", "verified", "source"} < set(fields) and "extern" not in text
    assert fields["computes"].splitlines() == [
        "in0: float32[4, 20] of strides [20, 1]",
        "%0 = aten::mul.Tensor(in0, 3) -> float32[4, 20]",
        "%1 = aten::_softmax(%0, -1, False) -> float32[4, 20]",
        "returns %1",
    ]
    assert main(["cache", "show", key, "--source", *folder]) == 0
    assert 'extern "C"' in capsys.readouterr().out
    (without,) = as_json(capsys, "cache", "show", key, *folder)
    (full,) = as_json(capsys, "cache", "show", key, "--source", *folder)
    code = full["candidate"].pop("code")
    assert 'extern "C"' in code and len(code.splitlines()) == full["candidate"]["code_lines"]
    assert without == full


def test_records_with_equal_descriptions_are_distinguished(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    inputs = [torch.randn(6, 10), torch.randn(10, 6).t(), torch.randn(6, 11)]
    for policy in ("blocking", "record"):
        for x in inputs:
            torch._dynamo.reset()
            function = model if policy == "blocking" else lambda x: torch.softmax(x * 5, -1)
            compiled(function, tmp_path, on_miss=policy)(x)
    folder = ["--cache-dir", str(tmp_path)]
    differs = {row["differs"] for row in as_json(capsys, "cache", "ls", *folder)}
    assert "" in differs and len(differs) == 3
    assert any("in0: float32[6, 10] of strides [1, 6]" in text for text in differs)
    for verb in ("ls", "wanted"):
        assert main(["cache", verb, *folder]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 5
        assert sum(" of strides [1, 6]" in line for line in lines) == 1
        assert sum(" of strides [10, 1]" in line for line in lines) == 1


def test_a_start_of_several_wanted_keys_is_too_short(capsys: Output, tmp_path: Path) -> None:
    with cudaforge_backend.enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        for columns in range(100, 117):  # more than there are digits
            torch.randn(2, columns).softmax(-1)
    folder = ["--cache-dir", str(tmp_path)]
    starts = Counter(row["key"][0] for row in as_json(capsys, "cache", "wanted", *folder))
    (start, keys), *_ = starts.most_common()
    shown = refusal(capsys, "cache", "show", start, *folder)
    assert f"{start!r} is the start of {keys} keys; give more digits" in shown


def test_rm_forgets_one_region(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    for columns in (21, 22):
        torch._dynamo.reset()
        compiled(model, tmp_path)(torch.randn(4, columns))
    folder = ["--cache-dir", str(tmp_path)]
    first, second = as_json(capsys, "cache", "ls", *folder)
    assert "the start of 2 keys" in refusal(capsys, "cache", "rm", "", *folder)
    assert "no record or wanted region on cpu:other" in refusal(
        capsys, "cache", "rm", first["key"], "--arch", "cpu:other", *folder
    )
    assert main(["cache", "rm", first["key"][:16], *folder]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"removed: winner, {first['key'][:12]} on cpu:") and "softmax" in text
    assert f"wanted now: `cudaforge forge {first['key'][:12]}` makes it again" in text
    assert as_json(capsys, "cache", "ls", *folder) == [second]
    assert [row["key"] for row in as_json(capsys, "cache", "wanted", *folder)] == [first["key"]]
    shown = refusal(capsys, "cache", "show", first["key"][:12], *folder)
    assert "is wanted and has no record yet: `cudaforge forge --wanted`" in shown
    # A second time: it leaves the wanted list too.
    assert main(["cache", "rm", first["key"], *folder]) == 0
    text = capsys.readouterr().out
    assert (
        text.startswith(f"not wanted any more: {first['key'][:12]} on cpu:") and "softmax" in text
    )
    assert as_json(capsys, "cache", "wanted", *folder) == []
    assert as_json(capsys, "cache", "ls", *folder) == [second]
    gone = refusal(capsys, "cache", "rm", first["key"], *folder)
    assert "no record or wanted region starts with" in gone


def test_version(capsys: Output) -> None:
    assert main(["--version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"cudaforge {cudaforge_backend.__version__}, torch 2.")


@pytest.mark.parametrize(
    ("argv", "suggested"),
    [
        (["warmpu"], "'warmup'"),
        (["cache", "exprot", "f"], "'export'"),
        (["cache", "ls", "--jsn"], "'--json'"),
        (["warmup", "a.py:f", "--devise", "cpu"], "'--device'"),
        (["cache", "show"], "KEY"),
        (["warmup", "a.py:f", "--device", "tpu"], "'cuda'"),
        (["cache"], "command"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line(capsys: Output, argv: list[str], suggested: str) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert printed.out == "" and line.startswith("cudaforge: ") and suggested in line
    assert re.search("See `cudaforge[a-z ]* --help`", line)


@pytest.mark.parametrize(
    "argv",
    [
        *([verb] for verb in ("doctor", "warmup", "forge", "lineage", "cache")),
        *(["cache", verb] for verb in ("ls", "show", "rm", "wanted", "stats", "export", "import")),
        [],
    ],
    ids=" ".join,
)
def test_every_help_lists_the_exit_codes(capsys: Output, argv: list[str]) -> None:
    assert main([*argv, "--help"]) == 0
    *_, codes = capsys.readouterr().out.partition("\nExit codes:\n")
    listed = re.findall(r"^  (\d+) ", codes, re.MULTILINE)
    assert listed == ["0", "1", "2", *(["3"] if argv == ["warmup"] else []), "130"]


def test_the_package_imports_nothing_of_its_command(run_python: RunPython) -> None:
    done = run_python(
        "import sys, cudaforge_backend\nprint({'click', 'rich'} & set(sys.modules))", ready=True
    )
    assert done.stdout == "set()\n"
