"""Writes a report as one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path

from .data import BenchmarkData, ReportData, to_json

_ASSETS = Path(__file__).with_name("assets")


def page(data: ReportData | BenchmarkData) -> str:
    """The whole page. Its content security policy runs this script alone and loads nothing."""
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    # One pass over the template: what is filled in is never searched for names.
    filled = {
        "style-hash": _hash(style),
        "script-hash": _hash(script),
        "title": html.escape(data.title),
        "style": style,
        "data": to_json(data),
        "script": script,
    }
    parts = _asset("page.html").split("@@")
    return "".join(part if n % 2 == 0 else filled[part] for n, part in enumerate(parts))


def write(data: ReportData | BenchmarkData, file: str | Path) -> None:
    """Writes the page. OSError: it cannot be written."""
    Path(file).write_text(page(data), encoding="utf-8")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a content security policy names an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
