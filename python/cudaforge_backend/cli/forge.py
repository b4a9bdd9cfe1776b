"""`cudaforge forge`: kernels for single regions, by the built-in generators, or by language models,
which also write them for all regions of a model."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click
import torch
from click.core import ParameterSource

from .._native import _C
from ..agents import Agents
from ..options import DISABLED, disabled
from ..progress import AgentStep, Candidate, Ended, Event, Stage
from ..records import counted, input_shapes, label, op_names
from ..steps import call_cost, cost_text, no_counters_text
from . import built_in
from .built_in import Asked
from .hints import Hints
from .limits import Limits
from .model import chosen_device, make_model
from .output import (
    Command,
    absolute,
    cache_dir_option,
    complete_files,
    json_option,
    region_budget_option,
    show,
    show_facts,
)
from .stores import forging_cache, is_asked, normalized, nothing_asked, of_key, wanted_here

_MAX_SILENT = 2  # regions in a row without a reply: hardly the limits of each

_EPILOG = f"""
Without --coder a region is decided as by on_miss="blocking": what the cache has decided stays.
Remove a record with `cudaforge cache rm KEY` first to replace it.

--max-time, --max-tokens and --max-usd hold for all regions together. A region may spend what
earlier ones did not; if too little is there, the others are passed over. Results are kept at once:
an interrupted session (Ctrl-C, or killed) is resumed by the same command.

If a model's region has no winner in the cache, its parts are forged too, each by itself, with as
many rounds.

With --coder, --json has the "rounds" and the "ledger" (cost) of each region, and the "total".

\b
Providers:
{_C.providers_help().rstrip()}

Keys are read from the environment alone: CUDAFORGE_CODER_API_KEY and CUDAFORGE_JUDGE_API_KEY, else
the variable listed with the provider.
"""


@dataclass(frozen=True, kw_only=True)
class AskedOfAgents(Asked):
    """What is forged, by which agents, and within which limits."""

    agents: Agents
    target: str
    train: bool
    again: bool
    hints: str | None
    is_time_shared: bool  # the time of `agents` is for all regions, not for each


@click.command(
    "forge",
    cls=Command,
    exits={
        1: "a region could not be decided; with --coder, no reply had a kernel that can be read",
    },
    epilog=_EPILOG,
)
@click.argument(
    "what", nargs=-1, metavar="[KEY|SCRIPT.py:FACTORY]...", shell_complete=complete_files
)
@click.option("--wanted", is_flag=True, help="Also all regions of this machine on the wanted list "
              "(`cudaforge cache wanted`).")  # fmt: skip
@click.option("--only", metavar="WORD", help="Only regions with WORD in their operations.")
@region_budget_option
@click.option("--coder", default="", metavar="PROVIDER",
              help="The agent that writes kernels (default: the built-in generators make "
              "them).")  # fmt: skip
@click.option("--judge", default="", metavar="PROVIDER", help="The agent that advises "
              "(default: none).")  # fmt: skip
@click.option("--language", type=click.Choice(["triton"]), help="Have kernels for a GPU written in "
              "Triton, which must be installed here, but not where they are served (default: CUDA "
              "C++, on a CPU C++).")  # fmt: skip
@click.option("--target", type=click.Choice(["auto", "cpu", "cuda"]), default="auto",
              show_default=True, help="The device of a script's model.")  # fmt: skip
@click.option("--train", is_flag=True, help="A script's graphs of training.")
@click.option("--strategy", type=click.Choice(_C.strategies()), default=Agents.strategy,
              show_default=True, help="The right kernel that a round improves: the fastest, or the "
              "last.")  # fmt: skip
@click.option("--rounds", type=int, default=Agents.rounds, show_default=True,
              help="Replies of the Coder for a region.")  # fmt: skip
@click.option("--max-time", type=float, metavar="SECONDS", help="Time of the agents' sessions, for "
              f"all regions together (default: {Agents.seconds:g} for each).")  # fmt: skip
@click.option("--max-tokens", type=int, default=Agents.tokens, show_default=True,
              help="Tokens for all regions together; 0: no limit.")  # fmt: skip
@click.option("--max-usd", type=float, default=Agents.usd, show_default="0",
              help="Dollars for all regions together; 0: no limit.")  # fmt: skip
@click.option("--prices", type=click.Path(readable=False), callback=absolute, metavar="FILE",
              default=Agents.prices_file, show_default=True,
              help="Dollars for a million tokens.")  # fmt: skip
@click.option("--no-metrics", is_flag=True, help="No hardware counters in prompts.")
@click.option("--no-resume", is_flag=True, help="Start again after an interruption.")
@click.option("--again", is_flag=True, help="Also regions of a model or of the wanted list that "
              "have a winner by agents. A KEY is always forged.")  # fmt: skip
@click.option("--hints", type=click.Path(readable=False), metavar="FILE", help="Whole lines added "
              "to it go into the next prompt; so do lines typed here.")  # fmt: skip
@cache_dir_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    what: tuple[str, ...],
    wanted: bool,
    only: str | None,
    region_budget: float | None,
    cache_dir: str,
    as_json: bool,
    **of_agents: Any,
) -> int:
    """Make kernels for regions, or have agents write them.

    KEY is the first digits of a region's key (`cudaforge cache ls`, `wanted`). SCRIPT.py:FACTORY,
    with --coder, names a function that returns (model, inputs): all regions of its graphs, matrix
    products, convolutions and attention among them. The script is run: use only scripts that you
    trust.

    Without --coder, the built-in generators make the kernels. With it, a Coder writes a kernel for
    a region. CudaForge compiles, verifies, times and profiles it. A Judge names the one next thing
    to change, round after round. The best right kernel then races ATen, Inductor and the built-in
    generators' kernel, and is kept if it wins.
    """
    if not (what or wanted):
        raise ValueError("name a region to forge: a KEY (`cudaforge cache wanted`), or --wanted")
    if disabled():
        raise ValueError(DISABLED)
    asked = Asked(
        what=what, wanted=wanted, only=only, region_budget=region_budget,
        cache_dir=cache_dir, as_json=as_json,
    )  # fmt: skip
    given = [name for name in of_agents if _is_given(ctx, name)]
    scripts = [one for one in what if ".py:" in one]
    if of_agents["coder"]:
        for name in ("target", "train"):
            if name in given and not scripts:
                raise ValueError(f"--{name} is of models and needs a SCRIPT.py:FACTORY")
        return _run_agents(_of_agents(asked, **of_agents))
    for name in given:
        if name != "coder":
            raise ValueError(f"--{name.replace('_', '-')} needs a --coder")
    for script in scripts:
        raise ValueError(
            f"the built-in generators forge {script} by `cudaforge warmup {script}`; without "
            "--coder, forge takes KEYs and --wanted"
        )
    return built_in.run(asked)


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _of_agents(asked: Asked, **given: Any) -> AskedOfAgents:
    agents = Agents(
        coder=given["coder"],
        judge=given["judge"],
        language=given["language"] or "",
        strategy=given["strategy"],
        metrics=not given["no_metrics"],
        rounds=given["rounds"],
        seconds=Agents.seconds if given["max_time"] is None else given["max_time"],
        tokens=given["max_tokens"],
        usd=given["max_usd"],
        prices_file=given["prices"],
        resume=not given["no_resume"],
    )
    return AskedOfAgents(
        **vars(asked),
        agents=agents,
        is_time_shared=given["max_time"] is not None,
        **{name: given[name] for name in ("target", "train", "again", "hints")},
    )


def _run_agents(asked: AskedOfAgents) -> int:
    """0 when there was a candidate for every region that was not passed over."""
    from ..integration.forging import forge_region

    _C.check_agents(asked.agents.settings())
    settings = built_in.settings_of(asked)
    forging_cache(settings.cache_dir)
    regions: dict[_C.Signature, bool] = {}  # each with whether a winner by agents is enough
    larger: dict[_C.Signature, str] = {}  # of parts: the key of the region without a winner
    there = False
    for what in asked.what:
        for signature, within in _regions(asked, what):
            there = True
            if is_asked(asked.only, signature):
                enough = ".py:" in what and not asked.again
                regions[signature] = enough and regions.get(signature, True)
                if within:
                    larger[signature] = within
    for signature in wanted_here(_C.store())[0] if asked.wanted else ():
        there = True
        if is_asked(asked.only, signature):
            regions.setdefault(signature, not asked.again)
    _check_language(asked.agents.language, regions)
    results = []
    in_a_row = 0  # regions without a reply
    limits = Limits(asked.agents, asked.is_time_shared)
    stream = sys.stderr if asked.as_json else sys.stdout
    said: set[str] = set()  # notes that are printed once for all regions
    hints = Hints(asked.hints, typed=not asked.as_json and sys.stdin.isatty())
    try:
        for signature, enough in regions.items():
            known = _winner_by_agents(signature) if enough else None
            limited = limits.spent if known is None else ""
            told = _Teller(signature, stream, known, limited, said, larger.get(signature))
            if known is not None or limited:
                results.append(told.result("winner" if known else "", ""))
                continue
            try:
                done = forge_region(
                    signature, 0, settings.region_budget_s, told,
                    agents=limits.for_region(), hints=hints.take, again=True,
                )  # fmt: skip
                results.append(told.result(done.kind, done.reason))
            except _C.NoReply as error:
                if not told.answered and limits.are_too_little(told.limit):
                    told.pass_over()
                results.append(told.result("", str(error)))
            limits.charge(told.ledger, told.limit)
            in_a_row = 0 if told.answered else in_a_row + 1
            if in_a_row == _MAX_SILENT:
                break
    finally:
        hints.say_unused()
    undecided = [result for result in results if not (result["kind"] or result["limited"])]
    silent = [result for result in undecided if not result["answered"]]
    empty = [result for result in undecided if result["answered"]]
    limited_regions = sum(result["limited"] for result in results)
    if limited_regions:
        print(f"passed over, as {limits.spent} is spent: {counted(limited_regions, 'region')}",
              file=stream, flush=True)  # fmt: skip

    total = _total([result["ledger"] for result in results if result["ledger"]])

    def summary() -> None:
        if not regions:
            print(nothing_asked(asked.only, there))
        known = sum(result["known"] for result in results)
        won = sum(result["kind"] == "winner" for result in results) - known
        over = known + limited_regions
        without = f", {len(silent)} without a reply" if silent else ""
        without += f", {len(empty)} without a candidate" if empty else ""
        wall, device = total["wall_seconds"], total["device_seconds"]
        show_facts(
            {
                "regions": f"{len(results)}: {won} won, {over} passed over{without}",
                "cost": cost_text(total),
                "time": f"{wall:.0f} s of sessions, {device:.0f} s of them on the device "
                "(Inductor's compilation and the races are not in it)",
                "cache": _C.store().location(),
            }
        )

    show(asked.as_json, {"regions": results, "total": total}, summary)
    if not undecided:
        return 0
    what = f"no reply for {counted(len(silent), 'region')}, " if silent else ""
    what += f"no candidate for {counted(len(empty), 'region')}, " if empty else ""
    left = len(regions) - len(results)
    after = f"; not begun after it: {counted(left, 'region')}" if left else ""
    print(f"cudaforge: {what}the last: {undecided[-1]['reason']}{after}", file=sys.stderr)
    return 1


def _check_language(language: str, signatures: Iterable[_C.Signature]) -> None:
    """ValueError: a region that no kernel in that language can be for."""
    for signature in signatures if language == "triton" else ():
        if signature.device != "cuda":
            region = signature.to_dict()
            where = label(op_names(region), input_shapes(region))
            raise ValueError(f"kernels in Triton are for a GPU; on the {signature.device}: {where}")


_SUMS = (
    "calls", "failed", "estimated", "replayed", "unpriced", "input_tokens", "cached_input_tokens",
    "output_tokens", "usd", "replayed_usd", "seconds", "wall_seconds", "device_seconds",
)  # fmt: skip


def _total(ledgers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: sum(ledger[name] for ledger in ledgers) for name in _SUMS}


def _regions(asked: AskedOfAgents, what: str) -> list[tuple[_C.Signature, str | None]]:
    """The signatures that a key or a script stands for, each with the key of the larger region
    without a winner that it is a part of, None where it is none."""
    if ".py:" in what:
        return _of_script(asked, what)
    return [(normalized(of_key(_C.store(), what)[0]["signature"]), None)]


def _winner_by_agents(signature: _C.Signature) -> Mapping[str, Any] | None:
    """The record of a region whose winner agents wrote, None where it has no such winner."""
    record = _C.store().get(signature.key, _C.arch(signature.device, 0))
    if record is None or "compiled" not in record["serves"] or not record["current"]:
        return None
    return record if record["by_agent"] else None


def _of_script(asked: AskedOfAgents, script: str) -> list[tuple[_C.Signature, str | None]]:
    """The signatures of a model's regions, as _regions() has them."""
    from ..explain import explain

    device = chosen_device("--target", asked.target)
    print(f"reading {script} ...", file=sys.stderr if asked.as_json else sys.stdout, flush=True)
    model, inputs = make_model(script, device)
    with torch.set_grad_enabled(asked.train):
        report = explain(model, *inputs, cache_dir=asked.cache_dir, agents=True)
    return [(normalized(region.signature), region.within) for region in report.regions]


class _Teller:
    """A callback for the events of one region. Prints them and keeps facts for the summary."""

    def __init__(
        self,
        signature: _C.Signature,
        stream: TextIO,
        known: Mapping[str, Any] | None = None,
        limited: str = "",
        said: set[str] | None = None,
        within: str | None = None,
    ) -> None:
        """known: the record, if the region is passed over because agents wrote its winner.
        limited: the spent limit, if it is passed over for that; one line reports all of these.
        said: notes already printed that hold for all regions; new ones are added.
        within: for a part, the key of the larger region, which has no winner."""
        region = signature.to_dict()
        self._stream = stream
        self._device = signature.device
        self._said = set() if said is None else said
        self._data: dict[str, Any] = {
            "key": signature.key,
            "ops": op_names(region),
            "shapes": input_shapes(region),
            "rounds": [],
            "end": f"{limited} is spent" if limited else "",
            "ledger": None,
            "answered": True,
            "known": known is not None,
            "verdict": "winner" if known else "",
            "limited": bool(limited),
            "within": within,
            "timing": known and known["timing"],
            "kept": None,
        }
        self._spent: Counter[str] = Counter()
        self.limit = ""  # the setting that left no room for another call
        if limited:
            return
        over = ": passed over, its winner is by agents (--again: goes on from it)" if known else ""
        region_label = label(self._data["ops"], self._data["shapes"])
        self._print(f"{self._data['key'][:12]}  {region_label}{over}")
        if within and not known:
            self._print(f"  a part of {within[:12]}, which has no winner: forged by itself")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    @property
    def answered(self) -> bool:
        """Whether the Coder replied at all."""
        return bool(self._data["answered"])

    @property
    def ledger(self) -> dict[str, Any]:
        """What the session cost. REQUIRES: it has ended."""
        return dict(self._data["ledger"])

    def pass_over(self) -> None:
        """The limits of the command left too little for the first call."""
        self._data |= {"limited": True, "answered": True}

    def result(self, kind: str, reason: str) -> dict[str, Any]:
        """All of it, JSON-serialisable."""
        return {**self._data, "kind": kind, "reason": reason}

    def __call__(self, event: Event) -> None:
        match event:
            case AgentStep():
                self._print(self._step_text(event))
                self._note(event)
            case Stage() | Ended():
                self._print(f"  {event.what}")
                if isinstance(event, Ended):
                    self._data |= {name: getattr(event, name) for name in ("verdict", "timing")}
                    self._data["kept"] = event.kept
            case Candidate() if event.round is not None:
                self._print(f"    {event.what}")
                judged = {"key": event.key, "round": event.number, "verdict": event.verdict}
                judged |= {"best": event.is_best, "ns": event.ns}
                self._data["rounds"].append({**event.round, **judged})
                if event.round.get("no_counters") and "no_counters" not in self._said:
                    self._said.add("no_counters")
                    why = no_counters_text(event.round["no_counters"], self._device)
                    self._print(f"    {why}")

    def _step_text(self, event: AgentStep) -> str:
        facts = event.facts
        inner = event.step in ("ask", "call", "advice")
        line = f"{'    ' if inner else '  '}{event.what}"
        if event.step in ("resumed", "call"):
            self._spent.update(_total([facts["ledger"]]) if "ledger" in facts else call_cost(facts))
            line += f"; so far {cost_text(self._spent)}"
        return line

    def _note(self, event: AgentStep) -> None:
        """What else a step leads to."""
        facts = event.facts
        match event.step:
            case "ask":
                provider, _, folder = facts["provider"].partition(":")
                if provider == "mailbox":
                    self._print(
                        f"      answer the newest NNNN-{facts['role']}.request.json in {folder} "
                        f"in NNNN-{facts['role']}.reply.txt there"
                    )
            case "call" if facts.get("note"):
                self._print(f"      {facts['note']}")
            case "agents_end":
                self._data |= {name: facts[name] for name in ("ledger", "answered")}
                self._data["end"] = facts["reason"]
                self.limit = facts["limit"]
