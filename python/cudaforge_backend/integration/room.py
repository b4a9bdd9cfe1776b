"""Whether the GPU memory that the program leaves free is enough to make a kernel."""

from __future__ import annotations

import torch

from cudaforge_backend._native import _C

# The verifier and its worker without inputs and outputs. Measured on an H200 (torch 2.11, CUDA 13):
# 716 and 524 MiB, mostly CUDA contexts; 160 MiB for cuBLAS and the buffer that evicts caches.
_PROCESSES = 1400 << 20
_RACE = 256 << 20  # allowed for the same in a race, in this process; not measured by itself
_LITTLE = 1 / 16  # of a GPU's memory: with less free, verifiers do not wait for the next region


def require_room(signature: _C.Signature, device: torch.device) -> None:
    """Raises MemoryError, with the bytes of each part, if too little GPU memory is free to verify a
    region (verifier and worker, if they do not run yet, with inputs and outputs) or for its race.
    Memory that PyTorch's allocator caches counts as free for the race."""
    if device.type != "cuda":
        return
    given, made = signature.bytes
    index = device.index or 0
    processes = 0 if _C.verifier_waits("cuda", index) else _PROCESSES
    verified = 2 * (given + made)
    raced = _race_bytes(signature, device)
    need = max(processes + verified, raced)  # leave_room ends the processes where a race needs that
    free = torch.cuda.mem_get_info(device)[0]
    if need > free:
        raise MemoryError(
            f"it needs {_mib(need)} of free GPU memory (processes {_mib(processes)}, inputs and "
            f"outputs in them {_mib(verified)}; the race, after they end, {_mib(raced)}), and "
            f"{_mib(free)} are free"
        )


def has_room(signature: _C.Signature, device: torch.device) -> bool:
    """Whether require_room raises nothing."""
    try:
        require_room(signature, device)
    except MemoryError:
        return False
    return True


def leave_room(device: torch.device, race_of: _C.Signature | None = None) -> None:
    """Ends idle verifiers if little memory is free, or less than the next race needs."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        raced = 0 if race_of is None else _race_bytes(race_of, device)
        if free < max(_LITTLE * total, raced):
            _C.end_waiting_verifiers()


def _race_bytes(signature: _C.Signature, device: torch.device) -> int:
    """Bytes that a race needs beyond those that PyTorch's allocator caches."""
    given, made = signature.bytes
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(0, int(_C.race_input_sets(signature) * given + 2 * made + _RACE - kept))


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
