"""Adds up the XML reports of a test run in a build folder: `summary.py FOLDER START`.

START is when the run began, in seconds since 1970: reports from before are earlier results, and
marked. The ten slowest tests follow. Exits with 1 where CUDAFORGE_REQUIRE_GPU=1 and a test was
skipped for want of a GPU.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path


def count(reports: Iterable[Path]) -> tuple[int, int, int, int]:
    """(passed, failed, skipped for want of a GPU, skipped otherwise) of some reports."""
    passed = failed = no_gpu = skipped = 0
    for report in reports:
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


def slowest(reports: Iterable[Path], most: int) -> list[tuple[float, str]]:
    """(seconds, name) of at most so many tests, the slowest first."""
    cases = (case for report in reports for case in ET.parse(report).iter("testcase"))
    timed = [
        (float(case.get("time", 0)), ".".join(filter(None, map(case.get, ("classname", "name")))))
        for case in cases
    ]
    return sorted(timed, reverse=True)[:most]


def main() -> int:
    """Prints one line for the C++ tests, one for pytest's, and one for each of the slowest."""
    gpu_skips = 0
    start = float(sys.argv[2])
    reports = set((Path(sys.argv[1]) / "test-reports").glob("*.xml"))
    python = {report for report in reports if report.name == "pytest.xml"}
    for name, some in (("C++", reports - python), ("Python", python)):
        passed, failed, no_gpu, skipped = count(some)
        gpu_skips += no_gpu
        earlier = any(report.stat().st_mtime < start for report in some)
        print(
            f"{name:7} {passed:5} passed {failed:4} failed"
            f" {no_gpu:4} skipped for want of a GPU {skipped:4} skipped for other reasons"
            f"{', earlier results' if earlier else ''}"
        )
    print("the slowest tests:")
    for seconds, test in slowest(reports, 10):
        print(f"{seconds:7.1f} s  {test}")
    if gpu_skips and os.environ.get("CUDAFORGE_REQUIRE_GPU") == "1":
        print("CUDAFORGE_REQUIRE_GPU=1 and GPU tests were skipped", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
