"""`cudaforge report`: what a page has, that it loads nothing, and that data stay data."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import sys
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from command import Output, refusal
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.integration import gate
from cudaforge_backend.report import collect, html
from cudaforge_backend.report.data import Roof, interval, microseconds, number, text, to_json
from cudaforge_backend.report.lineage import candidates_of, diff, in_tree_order, sessions_of
from cudaforge_backend.report.work import roof_note, roofs_of, work_of
from forged import compiled, lose_every_race, win_every_race
from reports import HOSTILE, SOURCE, data_in, hostile_report, nodes, written

ROOT = Path(__file__).parents[2]
PACKS = ROOT / "cache" / "packs" / "sm_90a"
MODEL = """
import torch
class Net(torch.nn.Module):
    def forward(self, x): return torch.softmax(x * 3, -1)
def make(): return Net(), (torch.randn(4, 61),)
"""


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = _Tags()
    parser.feed(page)
    return parser.found


def record_of(pack: str, kind: str = "negative") -> dict[str, Any]:
    """A record without a winner of the region of a pack that comes with CudaForge."""
    stored = json.loads((next(PACKS.glob(pack)) / "record.json").read_text())
    return {
        "kind": kind, "key": stored["key"], "arch": _C.arch("cpu"),
        "signature": stored["signature"], "verification": {}, "versions": _C.versions(),
        "timing": {}, "provenance": {"why": "none_right", "reason": HOSTILE, "author": HOSTILE},
    }  # fmt: skip


def signature_of(pack: str) -> _C.Signature:
    return _C.Signature.parse(json.dumps(record_of(pack)["signature"]))


# ---- The page ----


def test_a_page_has_one_script_and_loads_nothing() -> None:
    page = html.page(hostile_report())
    found = tags(page)
    scripts = [attributes for tag, attributes in found if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    loading = {"src", "href", "srcset", "action", "data", "poster", "background"}
    links = {
        value for _, attributes in found for name, value in attributes.items() if name in loading
    }
    assert links == {"#main", "data:,"}
    assert not {"img", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in found}
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in page and "@import" not in page and "innerHTML" not in page


def test_the_policy_of_a_page_allows_its_own_script_and_style_alone() -> None:
    page = html.page(hostile_report())
    (policy,) = (a["content"] for tag, a in tags(page) if tag == "meta" and "content" in a
                 and "http-equiv" in a)  # fmt: skip
    assert policy is not None and policy.startswith("default-src 'none';")
    for element in ("<script>", "<style>"):
        inside = page.rpartition(element)[2].partition(element.replace("<", "</"))[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_hostile_texts_come_through_unchanged() -> None:
    report = hostile_report()
    page = html.page(report)
    assert HOSTILE not in page and "<img" not in page
    assert data_in(page) == json.loads(json.dumps(asdict(report)))
    assert data_in(page)["regions"][0]["sessions"][0]["rounds"][0]["message"] == HOSTILE
    assert not set("<>&\u2028") & set(to_json(report)) and to_json(report).isascii()


def test_values_from_outside_are_taken_in_safely() -> None:
    assert text("a\u202eb\x1b[1m\n\tc\ud800") == r"a\u202eb\x1b[1m" + "\n\tc" + r"\ud800"
    assert text(None) == "" and text(3) == "3" and len(text("x" * 9000)) < 5000
    assert number(10**400) is None and number(float("nan")) is None and number("1") is None
    assert number(True) is None and number(2) == 2.0
    assert microseconds(-1.0) is None and microseconds(1500) == 1.5
    assert interval("x", [1, 2]) is None and interval("x", [1, "2", 3]) is None
    assert interval("x", None) is None


# ---- The lineage ----


def test_a_session_is_a_tree_with_costs_and_differences() -> None:
    (session,) = sessions_of(nodes())
    first, second = session.rounds
    assert (first.depth, second.depth, second.parent) == (0, 1, 0)
    assert first.message == HOSTILE and second.issue == HOSTILE and session.end == HOSTILE
    assert (second.us, second.rival_us) == (4.5, 9.0)
    assert session.cost == "330 tokens, $0.7500" and first.cost == "110 tokens, $0.2500"
    assert first.diff == () and first.diff_of is None and second.diff_of == 0
    changed = [line for line in second.diff if line[0] in "+-"]
    assert changed == ["-  return 0;", "+  return 1;"]


def test_a_round_is_compared_with_the_nearest_ancestor_that_has_a_source() -> None:
    given = [dict(node) for node in nodes()]
    del given[1]["source"]
    given[1]["reply"] = HOSTILE
    given.insert(2, {**given[0], "id": 2, "parent": 1, "source": SOURCE + "x"})
    _, refused, last = sessions_of(given)[0].rounds
    assert (refused.diff_of, refused.diff, refused.reply) == (None, (), HOSTILE)
    assert last.diff_of == 0 and last.diff[-1] == "+x"
    assert diff(SOURCE, SOURCE) == ()


def test_a_lineage_of_any_form_is_taken_in() -> None:
    odd: list[Any] = [
        {"session": "s", "id": 1, "parent": 2}, {"session": "s", "id": 2, "parent": 1},
        {"session": "s", "id": 3, "parent": 3}, {"session": "s", "id": 4, "parent": 99},
        {"session": ["x"], "id": "no number", "verdict": 7, "calls": {"a": 1}}, {"session": None},
        {"verdict": "a text", "ns": "soon", "params": [1, {"a": None}]}, {"ns": -5}, 7, "text",
        {"session": "s", "id": 5, "parent": None, "calls": [7, {"usage": 1, "usd": "x"}],
         "advice": 3, "prompts": [None, {"documents": "abc"}], "source": 5},
    ]  # fmt: skip
    sessions = {session.name: session for session in sessions_of(odd)}
    assert sorted(one.id for one in sessions["s"].rounds) == [1, 2, 3, 4, 5]
    assert len(candidates_of(odd)) == 2 and all(c.us is None for c in candidates_of(odd))


def test_a_long_line_of_rounds_is_put_in_order() -> None:
    line = [{"id": n, "parent": n - 1 if n else None} for n in range(5000)]
    order = [(node["id"], depth) for node, depth in in_tree_order(line[::-1])]
    assert order == [(n, n) for n in range(5000)]


# ---- What a region needs ----


def test_bytes_and_operations_come_from_the_signature() -> None:
    softmax = signature_of("softmax-*")
    _, sizes, _ = softmax.inputs[0]
    elements = sizes[0] * sizes[1]
    assert work_of(softmax) == (float(sum(softmax.bytes)), elements)
    gelu = signature_of("addmm-mul-erf-add-*")
    moved, flops = work_of(gelu)
    assert moved == 4 * (3 * 2048**2 + 2048)
    assert 2 * 2048**3 < flops < 2.01 * 2 * 2048**3  # the product, and pointwise operations


def test_the_roof_has_what_is_known() -> None:
    facts = {"bandwidth_gb_s": 4000.0, "fp32_tflops": 60.0, "launch_us": 2.0, "fp64_tflops": "?"}
    roofs = roofs_of(facts)
    assert [(roof.kind, roof.rate) for roof in roofs] == [("bandwidth", 4e12), ("compute", 6e13)]
    assert roofs_of({}) == ()
    said = {roof_note((), archs) for archs in (("cpu:a",), ("cuda:sm_90a",))}
    said.add(roof_note((Roof("memory", "bandwidth", 1e12),), ("cuda:sm_90a",)))
    assert len(said) == 3


# ---- Graphs ----


def test_a_graph_has_the_intervals_that_are_stored_and_no_others() -> None:
    overs = {"kernels": {"inductor": (1.1, 1.2, 1.3)}}
    ms = {"inductor": 2.0, "kernels": 1.7}
    verdict = gate.Verdict("kernels", frozenset(), ms=ms, overs=overs, sizes=("f[8]",))
    row = collect.graph_row("Graph 1", verdict)
    assert [(way.label, way.ms) for way in row.ways] == [("Inductor", 2.0), ("CudaForge", 1.7)]
    assert [(r.label, r.low, r.high) for r in row.ratios] == [("CudaForge over Inductor", 1.1, 1.3)]
    assert row.served == "CudaForge" and row.control is None and len(row.notes) == 1
    assert len(collect.graph_row("Graph 1", verdict._replace(doubtful=True)).notes) == 2
    controlled = collect.graph_row("Graph 1", verdict._replace(control=(0.9, 1.0, 1.1))).control
    assert controlled is not None and (controlled.low, controlled.high) == (0.9, 1.1)


def test_a_stored_verdict_has_its_intervals() -> None:
    name, arch = "ab" * 32, _C.arch("cpu")
    over = {"inductor": [1.1, 1.2, 1.3]}
    ways = [{"name": "inductor", "ms": 2.0}, {"name": "kernels", "ms": 1.7, "over": over}]
    _C.store().put_graph(name, arch, {"alternatives": ways, "regions": [], "doubtful": 1})
    verdict = gate.stored(name, arch)
    assert verdict is not None and verdict.doubtful
    assert verdict.overs == {"kernels": {"inductor": (1.1, 1.2, 1.3)}}


# ---- The command ----


def test_an_empty_cache_and_none_at_all_make_a_page(tmp_path: Path) -> None:
    _C.KernelStore.open(str(tmp_path / "empty"), True)
    for folder in ("empty", "none"):
        file = tmp_path / f"{folder}.html"
        assert main(["report", "--html", str(file), "--cache-dir", str(tmp_path / folder)]) == 0
        found = written(file)
        assert found["regions"] == [] and found["graphs"] == [] and found["machine"]
    assert not (tmp_path / "none").exists()


def test_a_region_without_a_winner_makes_a_page(tmp_path: Path) -> None:
    record = record_of("softmax-*")
    folder, file = tmp_path / "cache", tmp_path / "page.html"
    store = _C.KernelStore.open(str(folder), True)
    store.put(record, None, b"")
    signature = signature_of("cumsum-*")
    store.add_wanted([(signature, _C.arch("cpu"))])
    argv = ["--html", str(file), "--cache-dir", str(folder)]
    assert main(["report", *argv]) == 0
    found = {region["key"]: region for region in written(file)["regions"]}
    refused = found[record["key"]]
    assert refused["status"] == "no winner" and refused["author"] == HOSTILE
    assert (refused["winner_us"], refused["share"], refused["speedup"]) == (None, None, None)
    assert found[signature.key]["status"] == "not forged"
    assert [len(found[key]["commands"]) for key in (record["key"], signature.key)] == [3, 1]
    assert "<script>alert" not in file.read_text()
    assert main(["report", record["key"][:12], *argv]) == 0
    alone = written(file)
    assert [region["key"] for region in alone["regions"]] == [record["key"]]
    assert alone["command"].startswith(f"cudaforge report {record['key'][:12]} --html ")


def test_what_cannot_be_reported_is_refused(capsys: Output, tmp_path: Path) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    file = ("--html", str(tmp_path / "page.html"))
    assert "no record" in refusal(capsys, "report", "abc", *file, *folder)
    assert "no script" in refusal(capsys, "report", "none.py:make", *file, *folder)
    nowhere = ("--html", str(tmp_path / "none" / "page.html"))
    assert str(tmp_path / "none") in refusal(capsys, "report", *nowhere, *folder)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("won", [True, False])
def test_a_model_makes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, won: bool) -> None:
    (win_every_race if won else lose_every_race)(monkeypatch)
    script, folder, file = (tmp_path / name for name in ("net.py", "cache", "page.html"))
    script.write_text(MODEL)
    with torch.no_grad():
        compiled(lambda x: torch.softmax(x * 3, -1), folder)(torch.randn(4, 61))
    fastest = "kernels" if won else "inductor"
    ms = {"inductor": 2.0, fastest: 1.0}
    verdict = gate.Verdict(fastest, frozenset(r["key"] for r in store_of(folder)), ms=ms)
    monkeypatch.setattr(gate, "stored", lambda name, arch: verdict)
    argv = ["--html", str(file), "--cache-dir", str(folder), "--device", "cpu"]
    assert main(["report", f"{script}:make", *argv]) == 0
    found = written(file)
    assert found["title"] == "net.py:make" and len(found["graphs"]) == 1
    largest = next(r for r in found["regions"] if r["ops"] == "mul -> _softmax")
    assert largest["status"] == ("winner" if won else "no winner")
    assert largest["share"] == pytest.approx(largest["us"] / 1000)
    assert largest["candidates"] and largest["bytes"] == 2 * 4 * 4 * 61
    assert largest["headroom"] is None and found["roofs"] == []


def store_of(folder: Path) -> list[dict[str, Any]]:
    return _C.KernelStore.open(str(folder)).records()


# ---- Benchmarks ----


def test_results_of_a_benchmark_make_a_page(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("page", ROOT / "tests" / "benchmarks" / "page.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    sys.modules["page"] = page
    spec.loader.exec_module(page)
    ms = {"eager": 3.0, "inductor": 2.0, "again": 2.1, "cudaforge": 1.5}
    timed = {
        "name": "net", "ms": ms, "best": "inductor", "gain": [1.2, 1.3, 1.4],
        "control": [0.9, 1.0, 1.1],
    }  # fmt: skip
    rows = [page.timed_row(timed, ["a note"]), page.timed_row({"id": "x", "failed": HOSTILE}, [])]
    page.write_page(tmp_path / "page.html", "Models", rows, "cpu")
    found = written(tmp_path / "page.html")
    first, second = found["rows"]
    assert found["kind"] == "benchmark" and len(first["ways"]) == 3
    assert first["ratios"][0]["label"] == "CudaForge over Inductor"
    assert first["control"]["low"] == 0.9
    assert second["ways"] == [] and HOSTILE in second["notes"][0]
