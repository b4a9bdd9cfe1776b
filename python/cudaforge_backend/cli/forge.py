"""`cudaforge forge`: kernels for single regions, by the built-in generators, or by language models,
which also write them for all regions of a model."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import torch

from .._native import _C
from ..agents import Agents
from ..options import DISABLED, disabled
from ..progress import AgentStep, Candidate, Ended, Event, Stage
from ..records import counted, input_shapes, label, op_names
from ..steps import call_cost, cost_text, no_counters_text
from . import built_in
from .hints import Hints
from .limits import Limits
from .model import chosen_device, make_model
from .output import absolute, add_cache_dir, add_json, cache_dir, show
from .stores import forging_cache, is_asked, normalized, nothing_asked, of_key, wanted_here

_PROVIDERS = f"""providers:
{_C.providers_help()}
Keys are read from the environment alone: CUDAFORGE_CODER_API_KEY and CUDAFORGE_JUDGE_API_KEY, else
the variable that stands beside the provider.

--max-time, --max-tokens and --max-usd hold for all regions together: each may spend what those
before it have left, and where that is too little the others are passed over. What was found is
kept at once: an interrupted session (Ctrl-C, or killed) is resumed by the same command.

Of a model's regions that have no winner in the cache the parts are forged too, each by itself, with
as many rounds.

Without --coder a region is decided as by on_miss="blocking": what the cache has decided stays
(`cudaforge cache rm KEY` first has it made anew).

With --coder, --json has, of each region, its "rounds" and its "ledger", what they cost, and of all
regions the "total". "usd" is null, or leaves a call out, where a price is unknown ("unpriced"
counts those); calls that a recording answered ("replayed") spend nothing, and what they would have
cost is "replayed_usd". A region's "kind" is "winner" where its kernel was stored, "negative" where
not, "" where no reply had a candidate: it stays wanted."""

# Options that mean nothing without a Coder.
_OF_AGENTS = (
    "judge", "language", "target", "train", "strategy", "rounds", "max_time", "max_tokens",
    "max_usd", "prices", "no_metrics", "no_resume", "again", "hints",
)  # fmt: skip
_MAX_SILENT = 2  # regions in a row without a reply: hardly the limits of each


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "forge",
        help="make kernels of single regions, or have language models write them",
        description="Without --coder, the built-in generators make the kernels of the regions that "
        "are named, or of all that programs asked for (--wanted). With it, a Coder writes a kernel "
        "for a region, CudaForge compiles, verifies, times and profiles it, a Judge names the one "
        "next thing to change, round after round. The best right kernel then races ATen, Inductor "
        "and the built-in generators', and is kept if it wins.",
        epilog=_PROVIDERS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "what",
        nargs="*",
        metavar="KEY|SCRIPT.py:FACTORY",
        help="the first digits of a region's key (`cudaforge cache ls`, `wanted`), or, with "
        "--coder, a function that returns (model, inputs): all regions of its graphs, matrix "
        "products, convolutions and attention among them. The script is run: use only scripts that "
        "you trust",
    )
    command.add_argument("--wanted", action="store_true",
                         help="all regions of this machine on the wanted list (`cudaforge cache "
                         "wanted`), too")  # fmt: skip
    command.add_argument("--region-budget", type=float, metavar="SECONDS",
                         help="longest time for one region, without that of agents (default: "
                         "CUDAFORGE_REGION_BUDGET_S or 30)")  # fmt: skip
    command.add_argument("--coder", default="", metavar="PROVIDER",
                         help="who writes kernels; default: the built-in generators make "
                         "them")  # fmt: skip
    command.add_argument("--judge", default="", metavar="PROVIDER", help="default: nobody judges")
    command.add_argument("--language", choices=("", "triton"), default="", metavar="triton",
                         help="have kernels for a GPU written in Triton, which must be installed "
                         "here and is not needed where they are served; default: CUDA C++, on a "
                         "CPU C++")  # fmt: skip
    command.add_argument("--target", choices=("auto", "cpu", "cuda"), default="auto",
                         help="the device of a script's model; default: %(default)s")  # fmt: skip
    command.add_argument("--train", action="store_true", help="a script's graphs of training")
    command.add_argument("--only", metavar="WORD", help="only regions with WORD in their ops")
    command.add_argument("--strategy", choices=_C.strategies(), default=Agents.strategy,
                         help="which right kernel a round goes on from: the fastest, or the last; "
                         "default: %(default)s")  # fmt: skip
    command.add_argument(
        "--rounds",
        type=int,
        default=Agents.rounds,
        help="replies of the Coder for a region; default: %(default)s",
    )
    command.add_argument("--max-time", type=float, metavar="SECONDS",
                         help="of the agents' sessions, for all regions together; default: "
                         f"{Agents.seconds:g} for each")  # fmt: skip
    command.add_argument("--max-tokens", type=int, default=Agents.tokens,
                         help="for all regions together; 0: no limit; "
                         "default: %(default)s")  # fmt: skip
    command.add_argument("--max-usd", type=float, default=Agents.usd,
                         help="for all regions together; 0: no limit; "
                         "default: %(default)g")  # fmt: skip
    command.add_argument("--prices", type=absolute, default=Agents.prices_file, metavar="FILE",
                         help="dollars for a million tokens; default: %(default)s")  # fmt: skip
    command.add_argument(
        "--no-metrics", action="store_true", help="no hardware counters in prompts"
    )
    command.add_argument(
        "--no-resume", action="store_true", help="begin anew after an interruption"
    )
    command.add_argument(
        "--again",
        action="store_true",
        help="also regions of a model or of the wanted list that have a winner by agents; a KEY "
        "is always forged",
    )
    command.add_argument("--hints", metavar="FILE", help="whole lines added to it go into the "
                         "next prompt; so do lines typed here")  # fmt: skip
    add_cache_dir(command)
    add_json(command)
    unsaid = {name: command.get_default(name) for name in _OF_AGENTS}
    command.set_defaults(run=run, unsaid=unsaid)


def run(args: argparse.Namespace) -> int:
    """0 when every region that was not passed over was decided, or had a candidate."""
    if not (args.what or args.wanted):
        raise ValueError("name what is to be forged: a KEY (`cudaforge cache wanted`), or --wanted")
    if disabled():
        raise ValueError(DISABLED)
    if args.coder:
        return _run_agents(args)
    for name, unsaid in args.unsaid.items():
        if getattr(args, name) != unsaid:
            raise ValueError(f"--{name.replace('_', '-')} needs a --coder")
    for what in args.what:
        if ".py:" in what:
            raise ValueError(
                f"the built-in generators forge {what} by `cudaforge warmup {what}`; without "
                "--coder, forge takes KEYs and --wanted"
            )
    return built_in.run(args)


def _run_agents(args: argparse.Namespace) -> int:
    """0 when there was a candidate for every region that was not passed over."""
    from ..integration.forging import forge_region

    agents = Agents(
        coder=args.coder,
        judge=args.judge,
        language=args.language,
        strategy=args.strategy,
        metrics=not args.no_metrics,
        rounds=args.rounds,
        seconds=Agents.seconds if args.max_time is None else args.max_time,
        tokens=args.max_tokens,
        usd=args.max_usd,
        prices_file=args.prices,
        resume=not args.no_resume,
    )
    if not any(".py:" in what for what in args.what):
        for name in ("target", "train"):
            if getattr(args, name) != args.unsaid[name]:
                raise ValueError(f"--{name} is of models and needs a SCRIPT.py:FACTORY")
    _C.check_agents(agents.settings())
    settings = built_in.settings_of(args)
    forging_cache(settings.cache_dir)
    regions: dict[_C.Signature, bool] = {}  # each with whether a winner by agents is enough
    larger: dict[_C.Signature, str] = {}  # of parts: the key of the region without a winner
    there = False
    for what in args.what:
        for signature, within in _regions(args, what):
            there = True
            if is_asked(args.only, signature):
                enough = ".py:" in what and not args.again
                regions[signature] = enough and regions.get(signature, True)
                if within:
                    larger[signature] = within
    for signature in wanted_here(_C.store())[0] if args.wanted else ():
        there = True
        if is_asked(args.only, signature):
            regions.setdefault(signature, not args.again)
    _check_language(args.language, regions)
    results = []
    in_a_row = 0  # regions without a reply
    limits = Limits(agents, whole_time=args.max_time is not None)
    stream = sys.stderr if args.json else sys.stdout
    said: set[str] = set()  # what is told once for all regions
    hints = Hints(args.hints, typed=not args.json and sys.stdin.isatty())
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
            print(nothing_asked(args.only, there))
        known = sum(result["known"] for result in results)
        won = sum(result["kind"] == "winner" for result in results) - known
        over = known + limited_regions
        without = f", {len(silent)} without a reply" if silent else ""
        without += f", {len(empty)} without a candidate" if empty else ""
        wall, device = total["wall_seconds"], total["device_seconds"]
        print(
            f"{counted(len(results), 'region')}: {won} won, {over} passed over{without}; "
            f"{cost_text(total)}, {wall:.0f} s of sessions, {device:.0f} s of them on the "
            "device (Inductor's compilation and the races are not in it); "
            f"cache {_C.store().location()}"
        )

    show(args, {"regions": results, "total": total}, summary)
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


def _regions(args: argparse.Namespace, what: str) -> list[tuple[_C.Signature, str | None]]:
    """The signatures that a key or a script stands for, each with the key of the larger region
    without a winner that it is a part of, None where it is none."""
    if ".py:" in what:
        return _of_script(args, what)
    return [(normalized(of_key(_C.store(), what)[0]["signature"]), None)]


def _winner_by_agents(signature: _C.Signature) -> Mapping[str, Any] | None:
    """The record of a region whose winner agents wrote, None where it has no such winner."""
    record = _C.store().get(signature.key, _C.arch(signature.device, 0))
    if record is None or "compiled" not in record["serves"] or not record["current"]:
        return None
    return record if record["by_agent"] else None


def _of_script(args: argparse.Namespace, script: str) -> list[tuple[_C.Signature, str | None]]:
    """The signatures of a model's regions, as _regions() has them."""
    from ..explain import explain

    device = chosen_device("--target", args.target)
    print(f"reading {script} ...", file=sys.stderr if args.json else sys.stdout, flush=True)
    model, inputs = make_model(script, device)
    with torch.set_grad_enabled(args.train):
        report = explain(model, *inputs, cache_dir=cache_dir(args), agents=True)
    return [(normalized(region.signature), region.within) for region in report.regions]


class _Teller:
    """Told of every step of one region: prints it, and keeps what the summary says."""

    def __init__(
        self,
        signature: _C.Signature,
        stream: TextIO,
        known: Mapping[str, Any] | None = None,
        limited: str = "",
        said: set[str] | None = None,
        within: str | None = None,
    ) -> None:
        """Of a region that is passed over: `known` is its record, `limited` the limit that is
        spent, which is told of all such regions together. `said`: what was told of a region before
        and holds for all; this one adds to it. Of a part: `within` is the key of the larger
        region, which has no winner."""
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
