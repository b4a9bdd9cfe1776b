"""graph_budget_s: how long the regions of one graph are forged, and what becomes of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import RegionFound, RegionsLeft
from cudaforge_backend._native import _C
from cudaforge_backend.integration import gate, plan, rivals, together
from cudaforge_backend.steps import step_text
from forged import compiled, win_every_race
from torch import Tensor


def three_regions(x: Tensor) -> tuple[Tensor, ...]:
    return x.softmax(-1), x.cumsum(-1), x.amax(-1)


class _Clock:
    """Stands for the time module: a region takes as long as it is given, `takes_s` at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes_s: float) -> None:
        self.now = 0.0
        self.given: list[float] = []  # seconds, of each region
        self.takes_s = takes_s
        monkeypatch.setattr(together, "time", self)
        monkeypatch.setattr(gate, "SECONDS", 0.0)
        monkeypatch.setattr(together.Together, "compiled", lambda *_: None)
        monkeypatch.setattr(plan, "forge_one", self.forge_one)
        monkeypatch.setattr(plan, "least_seconds", lambda device: 8.0)

    def monotonic(self) -> float:
        return self.now

    def forge_one(
        self, signature: _C.Signature, index: int, settings: Any, *_: Any, **__: Any
    ) -> bool:
        self.given.append(settings.region_budget_s)
        self.now += min(self.takes_s, settings.region_budget_s)
        return True


@pytest.mark.parametrize("grad", [True, False])
def test_a_training_graph_has_twice_the_budget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, grad: bool
) -> None:
    win_every_race(monkeypatch)
    left: list[float] = []
    cudaforge_backend.set_progress(lambda event: left.append(event.most_s or 0.0))
    x = torch.randn(6, 44, requires_grad=grad)
    compiled(lambda x: x.softmax(-1), tmp_path, graph_budget_s=500)(x)
    assert 450 < max(left) - 500 * grad <= 500


@pytest.mark.parametrize(
    ("takes_s", "budget_s", "given"),
    [
        (1.0, 60, [30.0, 30.0, 30.0]),
        (30.0, 60, [30.0, 30.0]),  # nothing is left
        (25.0, 60, [30.0, 30.0, 10.0]),
        (25.0, 57, [30.0, 30.0]),  # too little time remains for a race
    ],
)
def test_regions_share_the_budget(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    takes_s: float,
    budget_s: float,
    given: list[float],
) -> None:
    clock = _Clock(monkeypatch, takes_s)
    events: list[Any] = []
    cudaforge_backend.set_progress(events.append)
    x = torch.randn(6, 40)
    made = compiled(three_regions, tmp_path, region_budget_s=30, graph_budget_s=budget_s)
    torch.testing.assert_close(made(x), three_regions(x))
    assert clock.given == given
    regions = [event.key for event in events if isinstance(event, RegionFound)]
    left = regions[len(given) :]
    told = [sorted(event.keys) for event in events if isinstance(event, RegionsLeft)]
    assert told == [sorted(left)] * bool(left)
    assert {region["key"] for region in _C.store().wanted()} == set(left)
    stats = cudaforge_backend.stats()
    assert stats.fallbacks == ({"graph_budget": len(left)} if left else {})


def test_what_was_left_is_said() -> None:
    text = step_text({"event": "left", "regions": ["a", "b"], "graph_budget_s": 60.0})
    assert text.startswith("2 regions (parts count as regions) not forged: graph_budget_s=60 ")


def test_agents_have_limits_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = _Clock(monkeypatch, 1e4)
    agents = {"coder": "command:true"}
    compiled(three_regions, tmp_path, graph_budget_s=1, agents=agents)(torch.randn(6, 41))
    assert len(clock.given) == 3


def test_compilations_are_expected_to_take_what_the_last_ones_took() -> None:
    device = torch.device("cpu")
    before = list(rivals._compilations["cpu"])
    try:
        for _ in range(5):
            rivals.timed(device, lambda: lambda inputs: None)
        assert rivals.compile_seconds(device) < 0.1
        assert rivals.least_seconds(device) == 2 * rivals.compile_seconds(device)
    finally:
        rivals._compilations["cpu"].extend(before)
