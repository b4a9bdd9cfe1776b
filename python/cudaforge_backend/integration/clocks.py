"""What a race measures by: whether the processor is quiet, and a GPU's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

DAY_S = 24 * 3600  # a doubtful measurement, or one with too little time, is kept this long

_QUEUED_CYCLES = 2_000_000  # about 1 ms of GPU clock: the host is ahead when the timed work starts

_BUSY_CORES = 0.2  # no race while the program uses more of a core than this
_BUSY_SECONDS = 0.03  # length of one measurement of that use
_BUSY_LOOKS = 3  # measurements at most; the first quiet one is enough
_SETTLE_SECONDS = 0.01  # PyTorch's threads wait in a loop before they sleep


def program_is_busy() -> bool:
    """Whether this process works while the calling thread sleeps. Takes 0.04 to 0.12 s."""
    for _ in range(_BUSY_LOOKS):
        time.sleep(_SETTLE_SECONDS)
        worked, began = time.process_time(), time.monotonic()
        time.sleep(_BUSY_SECONDS)
        if time.process_time() - worked <= _BUSY_CORES * (time.monotonic() - began):
            return False
    return True


Clock = Callable[[Callable[[], None], Sequence[torch.Tensor]], float]


def cuda_clock(device: torch.device) -> Clock:
    """Nanoseconds of device time for one call of work, with nothing in the caches but the tensors
    that are given with it: events behind enough queued work that the host's own time does not
    show."""
    properties = torch.cuda.get_device_properties(device)
    evict = torch.empty(2 * properties.L2_cache_size + (64 << 20), dtype=torch.uint8, device=device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def clock(work: Callable[[], None], warm: Sequence[torch.Tensor]) -> float:
        with torch.cuda.device(device):
            torch.cuda._sleep(_QUEUED_CYCLES)  # type: ignore[no-untyped-call]
            evict.zero_()
            for tensor in warm:
                read = torch.empty(0, dtype=torch.uint8, device=device)
                read.set_(tensor.untyped_storage())
                evict[: read.numel()].copy_(read)
            begin.record()
            work()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e6

    return clock
