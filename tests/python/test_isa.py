"""Inductor's questions about vector instructions are asked once a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from cudaforge_backend.integration import isa
from torch._inductor import cpu_vec_isa


def test_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def check_build(self: cpu_vec_isa.VecISA, code: str) -> bool:
        asked.append(code)
        return code == "yes"

    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", check_build)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    isa.install(str(tmp_path))
    one = cpu_vec_isa.VecAVX2()
    for _ in range(2):
        assert one.check_build("yes") is True
        assert one.check_build("no") is False
    assert asked == ["yes", "no"]
    for cache in (tmp_path / "another", tmp_path):  # another of our caches, with Inductor's
        isa.install(str(cache))
        assert one.check_build("yes") is True
    assert asked == ["yes", "no"]
    for known in (tmp_path, tmp_path / "inductor"):
        (known / "vec_isa.json").write_text("damaged")
    assert one.check_build("yes") is True
    assert asked == ["yes", "no", "yes"]


def test_an_unwritable_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda self, code: True)
    isa.install(str(tmp_path / "file"))
    assert cpu_vec_isa.VecAVX2().check_build("x") is True


def test_a_folder_that_cannot_be_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda self, code: True)
    isa.install("/tmp/\0")
    assert cpu_vec_isa.VecAVX2().check_build("x") is True
