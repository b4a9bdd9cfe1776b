"""Steps of forging in words: what `cudaforge warmup` and `forge` print of an event, and what
CUDAFORGE_LOG=forge writes. cudaforge_backend.set_progress has the events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .records import (
    RIVALS,
    clipped,
    counted,
    kind_text,
    speedup_text,
)

Event = Mapping[str, Any]

_STAGES = {
    "rivals": "timing ATen and Inductor, which compiles first",
    "compile": "Inductor compiles what the best kernel has to beat",
    "race": "the best kernel races ATen and Inductor",
}


def step_text(event: Event) -> str:
    """Any event in one line."""
    match event["event"]:
        case "start":
            return f"forging {event['region']} ..."
        case "left":
            return (
                f"{counted(len(event['regions']), 'region')}, parts included, not forged: "
                f"graph_budget_s={event['graph_budget_s']:g} leaves too little time; "
                "`cudaforge forge --wanted` forges them"
            )
        case "candidate":
            return candidate_text(event)
        case "verified":
            return f"candidate {event['index']} on every input set: {event['verdict']}"
        case "stage":
            inside = " inside the larger region" if event.get("within") else ""
            return _STAGES[event["stage"]] + inside
        case "rival":
            return f"to beat: {rival_text(event)}, {event['us']:.1f} us"
        case "resumed":
            return f"goes on with an interrupted session of {counted(event['nodes'], 'round')}"
        case "round":
            near = event.get("near")
            origin = f", from the nearest region, {near[:12]}" if near else ""
            return f"round {event['round']}: {event['kind']}{origin}"
        case "ask":
            return f"asking the {event['role']} ({event['provider']})"
        case "call":
            how = "replayed" if event.get("replayed") else f"{event['seconds']:.0f} s"
            return f"{event['role']} ({how})"
        case "advice" if event.get("issue"):
            return f"judge: {event['issue']} -> {event['plan']}"
        case "advice":
            return f"judge: no advice ({event.get('silence', '')})"
        case "rejudged":
            words = f": {clipped(event['message'])}" if event["message"] else ""
            was, now = event["before"], event["verdict"]
            return f"round {event['round']} was {was} and is now {now}{words}"
        case "agents_end":
            return f"agents ended: {event['reason']}"
        case "end":
            return outcome_text(event)
    return str(event["event"])


def rival_text(event: Event) -> str:
    """What agents are to beat, of its event "rival"."""
    return RIVALS.get(event["rival"], "the generators' kernel")


def candidate_text(event: Event, rival: str = "what it had to beat") -> str:
    """A candidate's verdict and time; `rival` is what a round of agents had to beat."""
    ns = event.get("ns")
    time = f", {ns / 1e3:.1f} us" if ns is not None else ""
    if event.get("speedup"):
        time += f", about {event['speedup']:.2f} times as fast as {rival}"
    best = ", the best so far" if event.get("best") else ""
    words = f": {clipped(event['message'])}" if event.get("message") else ""
    if event.get("duplicate_of") is not None:
        words = f": the same kernel as round {event['duplicate_of']}"
    number = "" if "round" in event else f"candidate {event['index']}: "
    return f"{number}{event['verdict']}{time}{best}{words}"


_COUNTERS = {
    "cpu": "cycles, instructions, cache and branch misses",
    "cuda": "memory traffic, hit rates and what warps wait for",
}


def no_counters_text(why: str, device: str) -> str:
    """What Judge and Coder are not told of a kernel on `device`, and why: "no_counters" of an event
    "candidate"."""
    why = " ".join(why.removeprefix("no hardware counters: ").split())
    return f"no hardware counters: Judge and Coder go without {_COUNTERS[device]} ({why})"


def outcome_text(event: Event) -> str:
    """What a forging came to and how long it took, of its event "end": "winner, 1.20x, 3.4 s"."""
    timing = event["timing"] or {}
    line = kind_text(event)
    if "compiled" in event["serves"]:
        line += f", {timing['speedup'][1]:.2f}x" if timing.get("speedup") else ""
    else:
        line += f": {event['verdict']}" + f" ({event['reason']})" * ("best_rival" in timing)
    if event["kept"] is not None:
        line += f"; {_kept_text(event['kept'])}"
    return f"{line}, {event['seconds']:.1f} s"


def race_text(event: Event) -> str:
    """The verdict of a race with its interval, of the event "end", and which winner was there and
    stays: "winner: 1.20 times as fast as ATen [1.15, 1.25]"."""
    words = speedup_text(event["timing"], event["serves"])
    text = str(event["verdict"]) + (f": {words}" if words else "")
    return text if event["kept"] is None else f"{text}; {_kept_text(event['kept'])}"


def _kept_text(kept: Mapping[str, Any]) -> str:
    by = "an agent" if kept["by_agent"] else "the generators"
    was = speedup_text(kept["timing"]) or "not timed"
    return f"the kernel in the cache stays: {was}, by {by}"
