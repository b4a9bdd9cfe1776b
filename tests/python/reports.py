"""Reports for tests: one whose every text is hostile, and the data of a page that was written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cudaforge_backend.report import data
from cudaforge_backend.report.lineage import sessions_of

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&lt;!--"
SOURCE = "int main() {\n  return 0;\n}\n"


def nodes() -> list[dict[str, Any]]:
    """A session of agents: two rounds, one on the other, and its end."""
    common = {"session": f"s{HOSTILE}", "author": "agent:test", "language": "cpu"}
    call = {"usage": {"input_tokens": 100, "output_tokens": 10}, "usd": 0.25}
    return [
        {
            **common, "id": 0, "parent": None, "kind": "seed", "source": SOURCE, "calls": [call],
            "verdict": {"verdict": "wrong_values", "message": HOSTILE}, "rival_ns": 9000.0,
        },
        {
            **common, "id": 1, "parent": 0, "kind": "repair", "ns": 4500.0, "rival_ns": 9000.0,
            "source": SOURCE.replace("0", "1"), "calls": [call, call],
            "advice": {"issue": HOSTILE, "plan": HOSTILE}, "verdict": {"verdict": "accepted"},
        },
        {"kind": "end", "session": common["session"], "reason": HOSTILE},
    ]  # fmt: skip


def region(key: str, ops: str, status: str, us: float, *, by_agents: bool = False) -> data.Region:
    """A region whose kernel takes so many microseconds, and its rival 10."""
    won = status == "winner"
    return data.Region(
        key=key * 64, arch="cpu:test", ops=ops, shapes=f"float32[8, 128], {HOSTILE}", status=status,
        why=HOSTILE, author=HOSTILE, device=HOSTILE, within="", program=(HOSTILE,), times=1,
        aten_us=12.0, inductor_us=10.0, winner_us=us, us=us if won else 10.0,
        speedup=data.Interval("Inductor", 0.9 * 10 / us, 10 / us, 1.1 * 10 / us),
        share=us / 100, floor_us=None, headroom=None, bytes=8192.0, flops=4096.0 * us,
        notes=(HOSTILE,),
        candidates=(data.Candidate("generator:rows", "accepted", HOSTILE, us, 1.5, HOSTILE),),
        sessions=sessions_of(nodes()) if by_agents else (),
        commands=(data.Fact("Again", f"cudaforge forge {HOSTILE}"),),
    )  # fmt: skip


def hostile_report() -> data.ReportData:
    """A report with a graph and three regions."""
    over = data.Interval("CudaForge over eager", 1.5, 2.0, 2.5)
    ways = (data.Way("eager", 2.0), data.Way("CudaForge", 1.0))
    control = data.Interval("eager over itself", 0.97, 1.0, 1.03)
    return data.ReportData(
        title=HOSTILE, subject=HOSTILE, created="2026-01-01 00:00", command=HOSTILE,
        machine=(data.Fact("CPU", HOSTILE),), machine_command=HOSTILE, notes=(HOSTILE,),
        graphs=(data.TimedRow(HOSTILE, ways, (over,), control, "CudaForge", (HOSTILE,)),),
        graphs_note=HOSTILE, graphs_command=HOSTILE,
        regions=(
            region("a", f"softmax -> mul -> {HOSTILE}", "winner", 5.0, by_agents=True),
            region("b", "cumsum", "no winner", 20.0),
            region("c", "argmax", "winner", 8.0),
        ),
        regions_command=HOSTILE, share_of=HOSTILE, headroom_note=HOSTILE,
        roofs=(
            data.Roof(HOSTILE, "bandwidth", 1e10), data.Roof(HOSTILE, "compute", 1e10),
        ),
        roof_note=HOSTILE,
    )  # fmt: skip


def data_in(page: str) -> Any:
    """What a page shows."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def written(file: Path) -> Any:
    """What the page in a file shows."""
    return data_in(file.read_text(encoding="utf-8"))
