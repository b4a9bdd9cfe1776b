"""Adds up the XML reports of a test run: `summary.py FOLDER`, one sub-folder a kind of test.

Exits with 1 where CUDAFORGE_REQUIRE_GPU=1 and a test was skipped for want of a GPU.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def count(folder: Path) -> tuple[int, int, int, int]:
    """(passed, failed, skipped for want of a GPU, skipped otherwise) of the reports in `folder`."""
    passed = failed = no_gpu = skipped = 0
    for report in folder.glob("*.xml"):
        for case in ET.parse(report).iter("testcase"):
            reason = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif reason is None:
                passed += case.get("status") != "notrun"
            elif "needs a GPU" in reason.get("message", ""):
                no_gpu += 1
            else:
                skipped += 1
    return passed, failed, no_gpu, skipped


def main() -> int:
    """Prints one line a kind of test."""
    gpu_skips = 0
    for folder in sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir()):
        passed, failed, no_gpu, skipped = count(folder)
        if folder.name != "sanitize":  # its GPU tests are the same ones again
            gpu_skips += no_gpu
        print(
            f"{folder.name:9} {passed:5} passed {failed:4} failed"
            f" {no_gpu:4} skipped for want of a GPU {skipped:4} skipped for other reasons"
        )
    if gpu_skips and os.environ.get("CUDAFORGE_REQUIRE_GPU") == "1":
        print("CUDAFORGE_REQUIRE_GPU=1 and GPU tests were skipped", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
