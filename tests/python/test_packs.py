"""Winners carried from one cache to another: proven on arrival, refused when they are not sound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from forged import compiled, lose_every_race, win_every_race

Output = pytest.CaptureFixture[str]


def tripled(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with the winners of two regions of equal shapes."""
    folder = tmp_path_factory.mktemp("packs") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        win_every_race(patch)
        torch._dynamo.reset()
        for function in (tripled, doubled):
            compiled(function, folder)(torch.randn(32, 64))
    assert len(winners(folder)) == 2
    yield folder


def winners(folder: Path) -> list[dict[str, Any]]:
    """The winners in a cache folder."""
    return [r for r in _C.KernelStore.open(str(folder)).records() if r["kind"] == "winner"]


@pytest.fixture
def pack(cache: Path, tmp_path: Path, capsys: Output) -> Path:
    """Both winners in a file."""
    file = tmp_path / "winners.pack"
    assert main(["cache", "export", str(file), "--cache-dir", str(cache)]) == 0
    assert "2 kernels" in capsys.readouterr().out
    return file


def adopt(output: Output, file: Path, folder: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and summary of `cudaforge cache import`."""
    code = main(["cache", "import", str(file), "--cache-dir", str(folder), "--json"])
    summary: dict[str, Any] = json.loads(output.readouterr().out)
    return code, summary


def test_ls_and_show(cache: Path, capsys: Output) -> None:
    folder = ("--cache-dir", str(cache))
    assert main(["cache", "ls", *folder, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in rows] == ["winner", "winner"]
    key = rows[0]["key"]
    assert main(["cache", "show", key[:16], *folder]) == 0
    shown = capsys.readouterr().out
    assert key in shown
    assert "softmax" in shown
    assert main(["cache", "show", "", *folder]) == 1
    assert "give more digits" in capsys.readouterr().err
    assert main(["cache", "ls", *folder, "--arch", "cuda:sm_90a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["cache", "ls", *folder, "--arch", "sm_90"]) == 0
    here = f"has no records for sm_90; it has {rows[0]['arch']}; architectures begin with "
    assert f'{here}"cuda:" or "cpu:"\n' in capsys.readouterr().out


def test_as_json(cache: Path, tmp_path: Path, capsys: Output) -> None:
    folder = ("--cache-dir", str(cache), "--json")
    key = winners(cache)[0]["key"]
    assert main(["cache", "show", key, "--source", *folder]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["key"] == key and "extern" in shown["candidate"]["code"]
    assert any(tried["verdict"]["verdict"] == "accepted" for tried in shown["lineage"])
    for arch, exported in (("cpu:other", 0), (shown["arch"], 2)):
        file = str(tmp_path / f"{exported}.pack")
        assert main(["cache", "export", file, "--arch", arch, *folder]) == int(not exported)
        assert json.loads(capsys.readouterr().out)["exported"] == exported


def test_import_proves_and_stores(pack: Path, tmp_path: Path, capsys: Output) -> None:
    code, summary = adopt(capsys, pack, tmp_path / "b")
    assert (code, summary["imported"], summary["rejected"]) == (0, 2, 0)
    code, summary = adopt(capsys, pack, tmp_path / "b")
    assert (code, summary["imported"], summary["kept_existing"]) == (0, 0, 2)


def test_a_second_import_says_what_stays(pack: Path, tmp_path: Path, capsys: Output) -> None:
    command = ["cache", "import", str(pack), "--cache-dir", str(tmp_path / "b")]
    stays = " verified; the kernel in the cache stays\n"
    for more, verified, kept in (([], 2, 0), ([], 0, 2), (["--replace"], 2, 0)):
        assert main([*command, *more]) == 0
        text = capsys.readouterr().out
        assert (text.count(" verified\n"), text.count(stays)) == (verified, kept)
        assert f", {kept} kept what was there, " in text


def test_sources_are_text_that_import_proves(cache: Path, tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "sources"
    common = ("--as-source", "--cache-dir", str(cache))
    assert main(["cache", "export", str(folder), "--arch", "cpu:other", *common]) == 1
    assert "no kernels for cpu:other" in capsys.readouterr().out
    assert main(["cache", "export", str(folder), *common]) == 0
    assert "2 kernels, a folder each" in capsys.readouterr().out
    sources = sorted(folder.glob("*/kernel.cpp"))
    assert len(sources) == 2 and all("extern" in source.read_text() for source in sources)
    code, summary = adopt(capsys, folder, tmp_path / "b")
    assert (code, summary["imported"], summary["rejected"]) == (0, 2, 0)
    sources[0].write_text(sources[0].read_text().replace("extern", "no code: extern", 1))
    code, summary = adopt(capsys, folder, tmp_path / "c")
    assert (code, summary["imported"], summary["rejected"]) == (1, 1, 1)
    assert "not proven on this machine" in summary["problems"][0]


def test_an_import_says_what_remains_to_be_forged(
    pack: Path, sources: Path, tmp_path: Path, capsys: Output
) -> None:
    for file, said in (
        (pack, "missing and finds"),
        (sources, "missing, such as regions with no winner, which a folder does not have, and fi"),
    ):
        capsys.readouterr()
        assert (
            main(["cache", "import", str(file), "--cache-dir", str(tmp_path / f"to-{file.name}")])
            == 0
        )
        assert f"model forges only what is still {said}" in capsys.readouterr().out


def test_sources_of_one_architecture_at_a_time(cache: Path, tmp_path: Path, capsys: Output) -> None:
    source = _C.KernelStore.open(str(cache))
    store = _C.KernelStore.open(str(tmp_path / "both"), True)
    record = winners(cache)[0]
    place = (record["key"], record["arch"])
    for arch in (record["arch"], "cuda:sm_80"):
        store.put({**record, "arch": arch}, source.candidate(*place), source.binary(*place))
    folder = tmp_path / "sources"
    command = ["cache", "export", str(folder), "--as-source", "--cache-dir", str(tmp_path / "both")]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "--arch" in said and "cuda:sm_80" in said and record["arch"] in said
    assert not folder.exists()
    assert main([*command, "--arch", "cuda:sm_80"]) == 0
    assert len(list(folder.iterdir())) == 1


def test_a_kernel_that_cannot_be_text_is_rejected_by_name(
    cache: Path, tmp_path: Path, capsys: Output
) -> None:
    source = _C.KernelStore.open(str(cache))
    store = _C.KernelStore.open(str(tmp_path / "odd"), True)
    first, other = winners(cache)
    place = (other["key"], other["arch"])
    store.put(first, {"language": 5}, b"binary")
    store.put(other, source.candidate(*place), source.binary(*place))
    folder = str(tmp_path / "sources")
    command = ["cache", "export", folder, "--as-source", "--cache-dir", str(tmp_path / "odd")]
    assert main(command) == 1
    said = capsys.readouterr().out
    assert "  rejected: " in said and first["key"][:12] in said
    assert "1 kernel, a folder each, 1 rejected" in said
    assert main([*command, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["exported"], result["rejected"], len(result["problems"])) == (1, 1, 1)


_SERVE = """
import json, torch, cudaforge_backend
from cudaforge_backend.integration import gate
gate.obstacle = lambda gm, analysis, inductor: "a test"  # serves it in any case
options = {"on_miss": "blocking", "cache_dir": CACHE}
torch.manual_seed(0)
x = torch.randn(32, 64)
f = torch.compile(lambda x: torch.softmax(x * 3, -1), backend="cudaforge", options=options)
good = torch.allclose(f(x), torch.softmax(x * 3, -1), atol=1e-6)
stats = cudaforge_backend.stats()
print(json.dumps([good, stats.hits, stats.misses, stats.forged, stats.negative]))
"""


def test_after_an_import_the_same_model_forges_nothing(
    pack: Path, tmp_path: Path, capsys: Output, run_python: RunPython
) -> None:
    adopt(capsys, pack, tmp_path / "b")
    done = run_python(_SERVE.replace("CACHE", repr(str(tmp_path / "b"))), ready=True)
    assert json.loads(done.stdout) == [True, 1, 0, 0, 0]


def test_regions_with_no_winner_are_not_reforged_either(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, run_python: RunPython
) -> None:
    lose_every_race(monkeypatch)
    torch._dynamo.reset()
    compiled(tripled, tmp_path / "a")(torch.randn(32, 64))
    lost = _C.KernelStore.open(str(tmp_path / "a")).records()
    assert lost and all(record["kind"] == "negative" for record in lost)
    file = tmp_path / "lost.pack"
    assert main(["cache", "export", str(file), "--cache-dir", str(tmp_path / "a")]) == 0
    assert f"0 kernels, {len(lost)} region" in capsys.readouterr().out
    code, summary = adopt(capsys, file, tmp_path / "b")
    assert (code, summary["imported"], summary["without_winner"]) == (0, 0, len(lost))
    code, summary = adopt(capsys, file, tmp_path / "b")
    assert (summary["without_winner"], summary["kept_existing"]) == (0, len(lost))
    done = run_python(_SERVE.replace("CACHE", repr(str(tmp_path / "b"))), ready=True)
    assert json.loads(done.stdout) == [True, 0, 0, 0, 0]


def refused(output: Output, file: Path, folder: Path) -> str:
    """What is said of a file that cannot be imported; nothing is stored."""
    assert main(["cache", "import", str(file), "--cache-dir", str(folder)]) == 1
    assert winners(folder) == []
    said: str = output.readouterr().err
    return said


def test_files_that_are_no_packs(pack: Path, tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "b"
    none = f"there is no {tmp_path / 'none'}; `cudaforge cache export` makes such files"
    assert none in refused(capsys, tmp_path / "none", folder)
    text = tmp_path / "text"
    text.write_text("no pack\n" * 100)
    assert "not a pack" in refused(capsys, text, folder)
    half = tmp_path / "half"
    half.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])
    again = "the checksum differs"
    assert again in refused(capsys, half, folder)
    damaged = bytearray(pack.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    half.write_bytes(damaged)
    assert again in refused(capsys, half, folder)


def packed(folder: Path, file: Path, **changes: Any) -> None:
    """A pack of the first winner in `folder`, some of its fields replaced."""
    source = _C.KernelStore.open(str(folder))
    record = winners(folder)[0]
    place = (record["key"], record["arch"])
    candidate = changes.pop("candidate", source.candidate(*place))
    store = _C.KernelStore.in_memory()
    store.put({**record, **changes}, candidate, source.binary(*place))
    _C.export_pack(store, str(file))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("arch", "made for cuda:sm_90a"),
        ("versions", "other versions"),
        ("other kernel", "wrong_values"),
        ("no kernel", "launch_error: the library has no function 'stage0'"),
    ],
)
def test_a_kernel_that_is_not_proven_here_is_rejected(
    cache: Path, tmp_path: Path, capsys: Output, change: str, said: str
) -> None:
    store = _C.KernelStore.open(str(cache))
    first, other = (store.candidate(r["key"], r["arch"]) for r in winners(cache))
    assert first is not None
    changes: dict[str, Any] = {
        "arch": {"arch": "cuda:sm_90a"},
        "versions": {"versions": {"torch": "2.10.0", "verifier": 1}},
        "other kernel": {"candidate": other},
        "no kernel": {"candidate": {**first, "code": "int nothing() { return 0; }"}},
    }[change]
    packed(cache, tmp_path / "pack", **changes)
    code, summary = adopt(capsys, tmp_path / "pack", tmp_path / "b")
    assert (code, summary["imported"], summary["rejected"]) == (1, 0, 1)
    assert said in summary["problems"][0]
    assert winners(tmp_path / "b") == []


def test_another_verifiers_winner_is_judged_by_this_one(
    cache: Path, tmp_path: Path, capsys: Output
) -> None:
    versions = {**_C.versions(), "verifier": 1}
    packed(cache, tmp_path / "pack", versions=versions)
    code, summary = adopt(capsys, tmp_path / "pack", tmp_path / "b")
    assert (code, summary["imported"], summary["rejected"]) == (0, 1, 0)
    (winner,) = winners(tmp_path / "b")
    assert winner["versions"]["verifier"] == _C.versions()["verifier"] > 1


def test_a_winner_raced_here_stays_unless_replaced(
    cache: Path, tmp_path: Path, capsys: Output
) -> None:
    here = tmp_path / "here"
    shutil.copytree(cache, here)
    first = winners(cache)[0]
    packed(cache, tmp_path / "pack", timing={**first["timing"], "speedup": [900.0, 901.0, 902.0]})
    code, summary = adopt(capsys, tmp_path / "pack", here)
    assert (code, summary["imported"], summary["kept_existing"]) == (0, 0, 1)
    assert first in winners(here)
    folder = ("--cache-dir", str(here))
    assert main(["cache", "import", str(tmp_path / "pack"), "--replace", *folder]) == 0
    assert "1 kernel verified and stored" in capsys.readouterr().out
    (other,) = (r for r in winners(here) if r["key"] == first["key"])
    assert other["timing"]["speedup"] == [900.0, 901.0, 902.0]


@pytest.fixture
def sources(cache: Path, tmp_path: Path) -> Path:
    """Both winners as folders of text, to be edited."""
    folder = tmp_path / "sources"
    assert main(["cache", "export", str(folder), "--as-source", "--cache-dir", str(cache)]) == 0
    return folder


def edit(sources: Path, **fields: Any) -> str:
    """Replaces fields of the first record, the timing in its variant; the name of its folder."""
    file = sorted(sources.glob("*/record.json"))[0]
    record = json.loads(file.read_text())
    if "timing" in fields:
        record["variants"][0]["timing"] = fields.pop("timing")
    file.write_text(json.dumps(record | fields))
    return file.parent.name


_ODD = [
    {"timing": {"speedup": "x"}},
    {"timing": [1]},
    {"timing": {"aten_us": -1}},
    {"timing": {"winner_us": 1e300}},
    {"timing": {"speedup": [None, "a", {}]}},
    {"provenance": ["x"]},
    {"provenance": {"created": 1e300}},
    {"provenance": {"author": 1}},
]


@pytest.mark.parametrize("odd", _ODD, ids=str)
def test_an_odd_record_is_rejected_by_name(
    sources: Path, tmp_path: Path, capsys: Output, odd: dict[str, Any]
) -> None:
    name = edit(sources, **odd)
    folder = ("--cache-dir", str(tmp_path / "b"))
    capsys.readouterr()
    assert main(["cache", "import", str(sources), *folder]) == 1
    said = capsys.readouterr().out
    (field,) = odd
    assert f"  rejected: {name}: {field}" in said
    assert said.count("rejected:") == 1 and "1 rejected" in said and said.count("verified\n") == 1
    assert main(["cache", "ls", *folder, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert main(["cache", "show", row["key"], *folder]) == 0


@pytest.mark.parametrize("odd", _ODD, ids=str)
def test_an_odd_record_cannot_be_stored(cache: Path, tmp_path: Path, odd: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        packed(cache, tmp_path / "pack", **odd)


def test_what_is_not_proven_is_said_once(sources: Path, tmp_path: Path, capsys: Output) -> None:
    file = sorted(sources.glob("*/kernel.cpp"))[0]
    file.write_text("\x1b[2J no code;\n")
    capsys.readouterr()
    assert main(["cache", "import", str(sources), "--cache-dir", str(tmp_path / "b")]) == 1
    said = capsys.readouterr().out
    key = file.parent.name.rpartition("-")[2]
    assert said.count("rejected:") == 1
    assert f"  rejected: {key}: not proven on this machine" in said
    assert "\x1b" not in said


def test_texts_of_others_reach_the_terminal_escaped(
    sources: Path, tmp_path: Path, capsys: Output
) -> None:
    name = edit(sources, provenance={"author": "\x1b]0;pwn\x07evil\n\x9b1m", "created": 1700000000})
    folder = ("--cache-dir", str(tmp_path / "b"))
    assert main(["cache", "import", str(sources), *folder]) == 0
    capsys.readouterr()
    key = name.rpartition("-")[2]
    assert main(["cache", "show", key, "--source", *folder]) == 0
    said = capsys.readouterr().out
    assert r"by \x1b]0;pwn\x07evil\n\x9b1m; candidates" in said
    assert not set("\x1b\x07\x9b") & set(said)
    assert "\n#include" in said  # the source's lines stay lines
    assert main(["cache", "show", key, "--json", *folder]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["provenance"]["author"].startswith("\x1b]0;")  # data is left as it is


def test_what_many_kernels_are_rejected_for_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    (tmp_path / "pack").mkdir()
    reasons = ["made for another machine"] * 3 + ["not proven on this machine"]
    problems = [f"{number:012d}: {reason}" for number, reason in enumerate(reasons)]

    def adopt_pack(file: str, tell: Any, replace: bool) -> dict[str, Any]:
        for problem in problems:
            tell("rejected", problem)
        counts = {"imported": 0, "without_winner": 0, "kept_existing": 0, "rejected": 4}
        return {**counts, "problems": problems}

    monkeypatch.setattr(_C, "adopt_pack", adopt_pack)
    main(["cache", "import", str(tmp_path / "pack"), "--cache-dir", str(tmp_path / "b")])
    told = [line.strip() for line in capsys.readouterr().out.splitlines() if "rejected:" in line]
    assert told == [
        f"rejected: {problems[0]}",
        f"rejected: {problems[3]}",
        "rejected: 2 more, each: made for another machine",
    ]
