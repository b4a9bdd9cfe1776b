"""What went wrong in a user's script, in one line."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

_LIBRARIES = (
    str(Path(__file__).parents[1]),
    str(Path(torch.__file__).parent),
    str(Path(traceback.__file__).parent),
    "<",  # what no file has: Python's own frozen modules, code that torch made
)
_FROM_USER_CODE = "from user code:"
# Patterns of Dynamo's messages, the most specific first.
_TELLING = [
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"got (\w+\((['\"]).+?\2\))$",
        r"^ *Explanation: *(.+)$",
        r"^ *Developer debug context: *(.+)$",
    )
]
_USERS_PLACE = re.compile(r'^ *File "(.+?)", line (\d+)', re.MULTILINE)


def failed(what: str, error: Exception) -> ValueError:
    """The error for `what` (a script, a factory, a model), which raised `error`: with torch's own
    explanation where it gives one, and the last line of the user's that was run."""
    place = _place(error)
    where = f" ({place[0]}, line {place[1]})" if place else ""
    return ValueError(f"{what} raised {type(error).__name__}: {_reason(str(error))}{where}")


def _reason(message: str) -> str:
    """The first line, and of a message of Dynamo's the later line that says more."""
    first = (message.strip().splitlines() or [""])[0]
    if _FROM_USER_CODE in message:
        for pattern in _TELLING:
            if found := pattern.search(message):
                return f"{first}: {found[1]}"
    return first


def _place(error: Exception) -> tuple[str, int | None] | None:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    places = [(f.filename, f.lineno) for f in frames]
    # Dynamo runs the user's lines itself and names them in its message.
    _, _, users = str(error).partition(_FROM_USER_CODE)
    places += [(name, int(line)) for name, line in _USERS_PLACE.findall(users)]
    libraries = (*_LIBRARIES, *_folders_of_generated_code())
    own = [place for place in places if not place[0].startswith(libraries)]
    return own[-1] if own else None


def _folders_of_generated_code() -> tuple[str, ...]:
    from torch._inductor.runtime.cache_dir_utils import cache_dir, default_cache_dir

    return cache_dir(), default_cache_dir()
