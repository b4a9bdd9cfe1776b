"""Steps of forging in words: what `cudaforge warmup` and `forge` print of an event, and what
CUDAFORGE_LOG=forge writes. cudaforge_backend.set_progress has the events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .records import RIVALS, clipped, counted, dollars, kind_text, speedup_text, status_text

Event = Mapping[str, Any]

# What is done to a graph when its regions have been forged, by the step of its event "graph".
GRAPH_STEPS = {
    "compile": "compiling the ways to run the graph",
    "race": "timing the ways to run the graph",
}

_STAGES = {
    "rivals": "timing ATen and Inductor, which compiles first",
    "compile": "Inductor compiles what the best kernel has to beat",
    "race": "the best kernel races ATen and Inductor",
}


def graph_text(event: Event) -> str:
    """The graph of an event "graph" in one line."""
    return f"a graph with kernels for {counted(len(event['regions']), 'region')}"


def step_text(event: Event) -> str:
    """Any event in one line."""
    match event["event"]:
        case "region":
            return f"{status_text(event['status'])}: {event['region']}"
        case "start":
            return f"forging {event['region']} ..."
        case "graph":
            return f"{GRAPH_STEPS[event['step']]} ..."
        case "left":
            return (
                f"{counted(len(event['regions']), 'region')} (parts count as regions) not forged: "
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
            rival = RIVALS.get(event["rival"], "the generators' kernel")
            return f"to beat: {rival}, {event['us']:.1f} us"
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


def candidate_text(event: Event) -> str:
    """A candidate's verdict and time."""
    ns = event.get("ns")
    time = f", {ns / 1e3:.1f} us" if ns is not None else ""
    if event.get("speedup"):
        time += f", about {event['speedup']:.2f} times as fast as what it had to beat"
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
    """Which counters of a kernel on `device` the Judge and the Coder do not get, and why. `why`:
    "no_counters" of an event "candidate"."""
    why = " ".join(why.removeprefix("no hardware counters: ").split())
    return f"no hardware counters: Judge and Coder go without {_COUNTERS[device]} ({why})"


def outcome_text(event: Event) -> str:
    """The result of a forging and its duration, from its event "end": "winner: 1.20 times as fast
    as ATen [1.15, 1.25], 3.4 s"."""
    timing = event["timing"] or {}
    if "compiled" in event["serves"]:
        words = speedup_text(timing, event["serves"])
    else:
        words = event["verdict"] + f" ({event['reason']})" * ("best_rival" in timing)
    line = f"{kind_text(event)}: {words}" if words else kind_text(event)
    if event["kept"] is not None:
        by = "an agent" if event["kept"]["by_agent"] else "the generators"
        was = speedup_text(event["kept"]["timing"]) or "not timed"
        line += f"; the kernel in the cache stays: {was}, by {by}"
    return f"{line}, {event['seconds']:.1f} s"


def call_cost(event: Event) -> dict[str, Any]:
    """What one call of an agent cost, of its event "call" (csrc/forge/agent/agent_calls.h): the
    fields of stats.AgentStats."""
    usage, replayed = event["usage"], bool(event.get("replayed"))
    unpriced = event.get("usd") is None and usage["input_tokens"] + usage["output_tokens"] > 0
    return {
        "calls": 1,
        "failed": int(bool(event.get("error"))),
        "estimated": int(bool(event.get("estimated"))),
        "replayed": int(replayed),
        "unpriced": int(unpriced and not replayed),
        "input_tokens": int(usage["input_tokens"]),
        "cached_input_tokens": int(usage.get("cached_input_tokens") or 0),
        "output_tokens": int(usage["output_tokens"]),
        "usd": 0.0 if replayed else event.get("usd") or 0.0,
    }


def cost_text(spent: Mapping[str, Any]) -> str:
    """Of sums of call_cost(): "about 210 tokens, $0.0120 and 1 call of unknown price"; "210 tokens
    as recorded, nothing spent"."""
    about = "about " if spent["estimated"] else ""
    tokens = f"{about}{spent['input_tokens'] + spent['output_tokens']} tokens"
    if spent["replayed"] and spent["replayed"] == spent["calls"]:
        return f"{tokens} as recorded, nothing spent"
    replayed = f" ({counted(spent['replayed'], 'call')} replayed)" if spent["replayed"] else ""
    return f"{tokens}{replayed}, {dollars(spent['usd'], spent['unpriced'])}"
