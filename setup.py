"""Builds the C++ core with CMake and packs it into the package; the rest is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROGRAMS = ("cudaforge-worker", "cudaforge-verifier")
TORCH = next(name for name in PROJECT["dependencies"] if name.startswith("torch=="))


def can_import(module: str) -> bool:
    """Whether the interpreter built for has `module`, seen from pip's isolated build too."""
    probe = [sys.executable, "-I", "-c", f"import {module}"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


class CMakeBuild(build_ext):
    """Configures and builds build/cmake, then copies `_C` and the programs beside the Python."""

    def run(self) -> None:
        build = Path(os.environ.get("CUDAFORGE_BUILD_DIR", ROOT / "build" / "cmake"))
        # Inside pip's isolated build torch may be an overlay: the child then sees this path.
        interpreter = sys.executable
        environment = dict(os.environ)
        if can_import("torch"):
            environment.pop("PYTHONPATH", None)
        configure = [
            "cmake",
            "-S",
            str(ROOT),
            "-B",
            str(build),
            f"-DCUDAFORGE_PYTHON={interpreter}",
        ]
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        tests = os.environ.get("CUDAFORGE_BUILD_TESTS", "OFF")
        # A compiler newer than ours may warn of more: that never breaks a user's build.
        warnings = os.environ.get("CUDAFORGE_WERROR", "OFF")
        configure += [f"-DCUDAFORGE_BUILD_TESTS={tests}", f"-DCUDAFORGE_WERROR={warnings}"]
        targets = [] if tests == "ON" else ["--target", "_C", *PROGRAMS]
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        subprocess.run(configure, check=True, env=environment)
        subprocess.run(
            ["cmake", "--build", str(build), "--parallel", jobs, *targets],
            check=True,
            env=environment,
        )
        package = ROOT / "python" if self.inplace else Path(self.build_lib)
        package = package / "cudaforge_backend"
        (package / "bin").mkdir(parents=True, exist_ok=True)
        for extension in build.glob("_C*.so"):
            replace(extension, package / extension.name)
        for program in PROGRAMS:
            replace(build / program, package / "bin" / program)
        replace(build / "built_for_torch.txt", package / "built_for_torch.txt")


def replace(source: Path, target: Path) -> None:
    """Copies by rename, so that a process that has the old file mapped keeps it."""
    temporary = target.with_name(target.name + ".new")
    shutil.copy2(source, temporary)
    temporary.replace(target)


build_needs = [] if can_import("torch") else [TORCH]
build_needs += [tool for tool in ("cmake", "ninja") if shutil.which(tool) is None]

setup(
    ext_modules=[Extension("cudaforge_backend._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    setup_requires=build_needs,
)
