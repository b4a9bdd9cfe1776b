"""Whole models with random weights, each compiled with CudaForge and no option, in a process of its
own and with an empty cache: how long the first result takes, where that time goes, and how fast the
model is then.

    python tests/benchmarks/whole_models.py [--only WORDS ...] [--device cpu|cuda] [--small]
        [--limit S] [--html FILE] --out RESULTS.jsonl

Needs the packages transformers and, for resnet50, timm. Each result is a line of RESULTS: a model
that has one there is skipped, so an interrupted run can be continued. `--small`: models
of few layers and narrow ones, for small machines. `--limit`: seconds for one model. At the end a
table of all results, and with `--html` a page.

first      Seconds of the first call: eager, by Inductor (in the same process, after eager), by
           CudaForge (in a second process).
by phase   stats().spent of CudaForge, all graphs together.
off        The largest difference from eager's result.
times      Interleaved rounds of eager, Inductor, a second Inductor and CudaForge, in milliseconds:
           medians. gain: the better of eager and Inductor over CudaForge; control: Inductor over
           itself; 95% intervals. CudaForge as a later process has it: made from what its
           cache has, between the two Inductors, as the first that a process compiles is slower.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cudaforge_backend.measure import compiled_apart

Step = Callable[[], Any]


def _image_model(name: str, small: bool) -> tuple[torch.nn.Module, tuple[int, ...]]:
    """A model of timm and the shape of its input."""
    timm: Any = importlib.import_module("timm")
    return timm.create_model(name, pretrained=False), (2, 3, 64, 64) if small else (32, 3, 224, 224)


def _transformer(name: str, small: bool) -> tuple[torch.nn.Module, tuple[int, int], int]:
    """A model, its batch and length, and how many tokens it knows."""
    t: Any = importlib.import_module("transformers")

    layers = 2 if small else None
    of = {"num_hidden_layers": layers} if layers else {}
    match name:
        case "gpt2":
            gpt = {"n_layer": 2, "n_embd": 128, "n_head": 4} if small else {}
            return t.GPT2LMHeadModel(t.GPT2Config(use_cache=False, **gpt)), (8, 512), 50257
        case "llama":
            width = 128 if small else 2048
            config = t.LlamaConfig(
                hidden_size=width, intermediate_size=width * 11 // 4, vocab_size=32000,
                num_hidden_layers=layers or 8, num_attention_heads=width // 64, use_cache=False,
            )  # fmt: skip
            return t.LlamaForCausalLM(config), (4, 512), 32000
        case "bert":
            bert = {**of, "hidden_size": 128, "num_attention_heads": 4} if small else {}
            return t.BertModel(t.BertConfig(**bert)), (32, 128), 30522
        case "t5":
            wide = {} if small else {"d_model": 768, "d_ff": 3072, "num_layers": 12}
            config = t.T5Config(num_heads=12, **{"num_layers": 2, **wide})
            return t.T5EncoderModel(config), (8, 512), 32128
    raise ValueError(f"no model {name!r}")


MODELS = {
    "gpt2": ("gpt2", "float32", False),
    "llama": ("llama", "float32", False),
    "bert": ("bert", "float32", False),
    "t5-bf16": ("t5", "bfloat16", False),
    "resnet50-bf16": ("resnet50", "bfloat16", False),
    "bert-training": ("bert", "float32", True),
}


def step_of(name: str, device: str, small: bool, compiled: Callable[[Any], Any]) -> Step:
    """One call, or one training step without its optimizer, of the model as `compiled` makes it."""
    kind, dtype, training = MODELS[name]
    torch.manual_seed(0)
    if kind == "resnet50":
        model, shape = _image_model(kind, small)
        inputs = torch.randn(shape, dtype=getattr(torch, dtype), device=device)
    else:
        model, (batch, length), tokens = _transformer(kind, small)
        batch, length = (2, 64) if small else (batch, length)
        inputs = torch.randint(0, tokens, (batch, length), device=device)
    model = model.to(device, getattr(torch, dtype)).train(training)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    run = compiled(model)
    targets: list[torch.Tensor] = []

    def step() -> Any:
        if not training:
            with torch.no_grad():
                return run(inputs)[0]
        out = run(inputs)[0]
        # A target, as the square of a normalised output hardly depends on what was normalised.
        if not targets:
            targets.append(torch.randn_like(out, dtype=torch.float32))
        (out.float() - targets[0]).square().mean().backward()
        model.zero_grad(set_to_none=True)
        return out.detach()

    return step


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _first(step: Step, device: str) -> tuple[float, torch.Tensor]:
    began = time.monotonic()
    out = step()
    _finish(device)
    return time.monotonic() - began, out


def run_one(name: str, device: str, small: bool) -> dict[str, Any]:
    """The results of one model."""
    import cudaforge_backend
    from cudaforge_backend import measure
    from cudaforge_backend.reasons import Phase

    torch._dynamo.config.cache_size_limit = 64
    if device == "cuda":
        torch.zeros(1, device=device)
    ours = step_of(name, device, small, lambda m: torch.compile(m, backend="cudaforge"))
    ours_s, ours_out = _first(ours, device)
    made = cudaforge_backend.stats()
    eager = step_of(name, device, small, lambda m: m)
    eager_s, eager_out = _first(eager, device)
    inductor, served, again = (
        step_of(name, device, small, partial(compiled_apart, backend=backend))
        for backend in ("inductor", "cudaforge", "inductor")
    )
    inductor_out = _first(inductor, device)[1]
    _first(served, device), _first(again, device)
    steps = {"eager": eager, "inductor": inductor, "again": again, "cudaforge": served}
    times = measure.time_interleaved(steps, device, min_rounds=20, budget_s=6.0)
    best = min(("eager", "inductor"), key=times.median_ms)
    phases = {p: sum(g.seconds[p] for g in made.spent) for p in Phase}
    called = cudaforge_backend.stats().regions
    return {
        "name": name,
        "first": {"cudaforge": ours_s, "eager": eager_s},
        "regions": sum(g.regions for g in made.spent),
        "won": made.forged,
        "phases": phases,
        "graphs": made.graphs,
        "left": made.fallbacks,
        "ways": [way.ms for way in made.ways],
        "served": {region.region: region.hits for region in called if region.hits},
        "ms": {step: times.median_ms(step) for step in steps},
        "best": best,
        "gain": times.speedup(best, "cudaforge"),
        "control": times.speedup("again", "inductor"),
        "off": _largest(ours_out - eager_out),
        "inductor_off": _largest(inductor_out - eager_out),
    }


def _largest(difference: torch.Tensor) -> float:
    return float(difference.float().abs().max())


def first_of_inductor(name: str, device: str, small: bool) -> float:
    """Seconds of Inductor's first call, in this process, with nothing compiled before."""
    if device == "cuda":
        torch.zeros(1, device=device)
    return _first(step_of(name, device, small, lambda m: torch.compile(m)), device)[0]


def _child(arguments: list[str], limit: float, fresh: str) -> dict[str, Any]:
    """What a process of its own prints, with empty caches below the folder `fresh` and no setting
    of how much is forged."""
    import os

    ours = ("ON_MISS", "REGION_BUDGET_S", "GRAPH_BUDGET_S")
    env = {**os.environ, **dict.fromkeys([f"CUDAFORGE_{name}" for name in ours], "")}
    env |= {"TORCHINDUCTOR_CACHE_DIR": f"{fresh}/inductor", "CUDAFORGE_CACHE_DIR": f"{fresh}/ours"}
    try:
        done = subprocess.run(
            [sys.executable, __file__, *arguments],
            capture_output=True, text=True, timeout=limit, env=env, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _row(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{result['name']:<14} {result['error']}"
    first, ms = result["first"], result["ms"]
    spent = ", ".join(f"{p} {s:.1f}" for p, s in result["phases"].items() if s >= 0.05)
    low, gain, high = result["gain"]
    off = f"off {result['off']:.2g} (Inductor {result['inductor_off']:.2g})"
    return (
        f"{result['name']:<14} first {first['cudaforge']:.1f} s (Inductor {first['inductor']:.1f}, "
        f"eager {first['eager']:.1f}); {result['regions']} regions, {result['won']} won; {spent}\n"
        f"{'':<14} ms: eager {ms['eager']:.2f}, Inductor {ms['inductor']:.2f}, CudaForge "
        f"{ms['cudaforge']:.2f}; gain {gain:.3f} [{low:.3f}, {high:.3f}] over {result['best']}, "
        f"control [{result['control'][0]:.3f}, {result['control'][2]:.3f}]; {off}"
    )


def _notes(result: dict[str, Any]) -> list[str]:
    """Facts of a result for a page, in addition to its times."""
    if "error" in result:
        return []
    labels = {"cudaforge": "CudaForge", "inductor": "Inductor"}
    first = ", ".join(f"{labels.get(way, way)} {s:.1f} s" for way, s in result["first"].items())
    regions = f"Regions forged: {result['regions']}, won: {result['won']}"
    return [f"First call: {first}.", f"{regions}; largest difference {result['off']:.2g}."]


def main() -> None:
    """See the module."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as a page")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        name, backend = args.child
        if backend == "inductor":
            print(json.dumps({"inductor": first_of_inductor(name, args.device, args.small)}))
        else:
            print(json.dumps(run_one(name, args.device, args.small)))
        return
    assert args.out is not None, "--out is needed"
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    done = {result["name"]: result for result in map(json.loads, lines)}
    small = ["--small"] if args.small else []
    for name in MODELS:
        if name in done or (args.only and not any(word in name for word in args.only)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            common = ["--device", args.device, *small, "--child", name]
            alone = _child([*common, "inductor"], args.limit, f"{folder}/i")
            result = _child([*common, "cudaforge"], args.limit, f"{folder}/c")
        if "error" not in result and "error" not in alone:
            result["first"]["inductor"] = alone["inductor"]
        result = {"name": name, **alone, **result} if "error" in alone else {"name": name, **result}
        done[name] = result
        print(_row(result), flush=True)
        with args.out.open("a") as out:
            out.write(json.dumps(result) + "\n")
    print("\n".join(map(_row, done.values())))
    if args.html:
        from page import timed_row, write_page

        rows = [timed_row(result, _notes(result)) for result in done.values()]
        write_page(args.html, "Whole models", rows, args.device)


if __name__ == "__main__":
    main()
