"""The files that the lint tests look at."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(*suffixes: str) -> list[Path]:
    """Files of the working tree with one of the suffixes, sorted; ignored files left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    paths = (ROOT / name for name in sorted(set(listed)) if name.endswith(suffixes))
    return [path for path in paths if path.is_file()]


def own_kernels() -> list[Path]:
    """CUDA sources that are part of the program: those of packs stay as agents wrote them."""
    return [path for path in files(".cu", ".cuh") if path.relative_to(ROOT).parts[0] == "csrc"]
