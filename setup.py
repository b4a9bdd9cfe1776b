"""Builds the C++ core with CMake and packs it into the package; the rest is in pyproject.toml."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
FACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cudaforge"]
PROGRAMS = ("cudaforge-worker", "cudaforge-verifier")


def seen(code: str) -> str | None:
    """What `code` prints in the interpreter built for, seen from pip's isolated build too; None
    where it fails."""
    probe = [sys.executable, "-I", "-c", code]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


class CMakeBuild(build_ext):
    """Configures and builds build/cmake, then copies `_C` and the programs to the package."""

    def run(self) -> None:
        build = Path(os.environ.get("CUDAFORGE_BUILD_DIR", ROOT / "build" / "cmake"))
        # Inside pip's isolated build torch may be an overlay: the child then sees this path.
        interpreter = sys.executable
        environment = dict(os.environ)
        if RELEASE is not None:
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


class Sources(sdist):
    """All that a build needs."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """As setuptools', with what CMake builds."""
        folders = [Path("csrc"), Path("cache")]
        more = [str(path) for f in folders for path in f.rglob("*") if path.is_file()]
        super().make_release_tree(base_dir, [*files, "CMakeLists.txt", *more])


def replace(source: Path, target: Path) -> None:
    """Copies by rename, so that a process that has the old file mapped keeps it."""
    temporary = target.with_name(target.name + ".new")
    shutil.copy2(source, temporary)
    temporary.replace(target)


def minor(release: str) -> tuple[int, ...]:
    """The numbers of a release's first two parts: (2, 11) of "2.11.0"."""
    return tuple(int(part) for part in release.split(".")[:2])


# The release of torch that is built for, without "+cu130": the one that is there. None: none is,
# and pip brings one of those that the sources take.
RELEASE = seen("import torch; print(torch.__version__.partition('+')[0])")
needed = f"torch{FACTS['torch']}"
version = FACTS["version"]
if RELEASE is not None and "sdist" not in sys.argv:
    if minor(RELEASE) < minor(FACTS["torch"].removeprefix(">=").partition(",")[0]):
        sys.exit(f"cudaforge: torch {RELEASE} is installed: pip install '{needed}' comes first")
    # What is built is for this release alone: PyTorch's C++ interface differs between releases.
    needed = f"torch=={RELEASE}"
    version += f"+torch{'.'.join(map(str, minor(RELEASE)))}"

setup(
    version=version,
    install_requires=[needed, "numpy", *FACTS["tools"]],  # torch warns where there is no numpy
    ext_modules=[Extension("cudaforge_backend._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "sdist": Sources},
    setup_requires=[
        *([needed] if RELEASE is None else []),
        *(tool for tool in ("cmake", "ninja") if shutil.which(tool) is None),
    ],
)
