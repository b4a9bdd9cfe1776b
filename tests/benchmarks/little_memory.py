"""A program that leaves little GPU memory free while a kernel is made for it in the background.

    python tests/benchmarks/little_memory.py [--leave MIB] [--side N] [--steps N] [--pause MS]

The program multiplies matrices of N x N (2304: 61 MiB in all), holds all but MIB (1024) of what
the GPU has left after its first call, and then makes N (1500) steps while the kernel is made in the
background. It prints how many steps had no memory, how many were wrong, how many the kernel served,
the least memory that was free meanwhile, and what is stored of the region.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import cudaforge_backend
import torch
from cudaforge_backend.records import find

MIB = 1 << 20


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--leave", type=int, default=1024)
    parser.add_argument("--side", type=int, default=2304)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--pause", type=float, default=20.0)
    args = parser.parse_args()

    seen: dict[str, str] = {}
    words: list[str] = []

    def note(event: Any) -> None:
        if isinstance(event, cudaforge_backend.RegionFound):
            seen[event.key] = event.arch
        elif isinstance(event, cudaforge_backend.Ended):
            words.append(f"{event.kind}: {event.why} {event.reason} ({event.seconds} s)")

    cudaforge_backend.set_progress(note)
    a, b = (torch.randn(args.side, args.side, device="cuda") for _ in range(2))
    right = a @ b
    allowed = 1e-4 * float(right.abs().max())
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(0, free - args.leave * MIB), dtype=torch.uint8, device="cuda")
    with tempfile.TemporaryDirectory() as cache:
        compiled = torch.compile(
            lambda a, b: a @ b,
            backend="cudaforge",
            options={"on_miss": "background", "cache_dir": cache},
        )
        without_memory = wrong = 0
        least = free
        began = time.monotonic()
        for _ in range(args.steps):
            try:
                wrong += int(float((compiled(a, b) - right).abs().max()) > allowed)
            except torch.cuda.OutOfMemoryError:
                without_memory += 1
            least = min(least, torch.cuda.mem_get_info()[0])
            time.sleep(args.pause / 1000)
        counts = cudaforge_backend.stats()
        took = time.monotonic() - began
        print(f"{args.steps} steps in {took:.0f} s, {held.numel() // MIB} MiB held")
        print(f"steps without memory {without_memory}, wrong {wrong}, served {counts.hits}")
        print(f"least free {least // MIB} MiB of {args.leave}; fallbacks {counts.fallbacks}")
        for word in words:
            print(word)
        for key, arch in seen.items():
            print(key, find(key, arch))


if __name__ == "__main__":
    main()
