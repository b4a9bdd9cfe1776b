"""What the commands share: options, exit codes, errors, and text or JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .._native import _C
from ..heartbeat import Teller, progress_bar
from ..progress import Ended, GraphStep, Started
from ..records import printable
from ..terminal import Console

_EXITS = {
    0: "done",
    1: "not done, or not all of it; standard error or the output says why",
    2: "wrong usage",
    130: "interrupted (Ctrl-C); finished work is kept, and the same command goes on from there",
}
_STYLES = {"ok": "green", "winner": "green", "missing": "yellow", "broken": "red", "failed": "red"}
_ERRORS = (OSError, ValueError, KeyError, RuntimeError, NotImplementedError)


def _write_exits(formatter: click.HelpFormatter, exits: Mapping[int, str]) -> None:
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), exits[code]) for code in sorted(exits)])


class Command(click.Command):
    """A command: lists its exit codes in --help. Prints an error in one line and returns 1."""

    def __init__(
        self,
        *args: Any,
        exits: Mapping[int, str] | None = None,
        reports_environment: bool = False,
        **settings: Any,
    ) -> None:
        """exits: what the exit codes of this command mean, if that is not the same for all.
        reports_environment: the command itself names wrong environment variables."""
        super().__init__(*args, **settings)
        self._exits = _EXITS | dict(exits or {})
        self._reports_environment = reports_environment

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The epilog, and the exit codes."""
        super().format_epilog(ctx, formatter)
        _write_exits(formatter, self._exits)

    def invoke(self, ctx: click.Context) -> int:
        """The exit code."""
        for warning in () if self._reports_environment else _C.config()["warnings"]:
            complain(warning)
        try:
            code = int(super().invoke(ctx))
            sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            complain("interrupted; what was finished is kept, and the same command goes on from it")
            return 130
        except BrokenPipeError:
            # The reader has gone. What is still buffered must not fail when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except _ERRORS as error:
            complain(error.args[0] if isinstance(error, KeyError) and error.args else error)
            return 1


class Group(click.Group):
    """A command that has commands."""

    command_class = Command

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"no_args_is_help": False, **settings})

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The epilog, and the exit codes."""
        super().format_epilog(ctx, formatter)
        _write_exits(formatter, _EXITS)


def complain(text: object) -> None:
    """Prints a line on standard error."""
    print(f"cudaforge: {text}", file=sys.stderr, flush=True)


def absolute(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """For an option with a path: a user's script may change the current folder."""
    return path and str(Path(path).absolute())


def _folder(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str:
    return absolute(ctx, parameter, path) or str(_C.config()["cache_dir"])


def complete_files(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """For an argument that may be a file: the shell offers files."""
    return [CompletionItem(incomplete, type="file")]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
cache_dir_option = click.option(
    "--cache-dir",
    metavar="DIR",
    type=click.Path(readable=False),
    callback=_folder,
    help="The cache (default: $CUDAFORGE_CACHE_DIR, else $XDG_CACHE_HOME/cudaforge, else "
    "~/.cache/cudaforge).",
)
region_budget_option = click.option(
    "--region-budget",
    type=float,
    metavar="SECONDS",
    help="Longest time for one region, without that of agents (default: CUDAFORGE_REGION_BUDGET_S "
    "or 30).",
)


def teller(as_json: bool, doing: str) -> Teller:
    """Reports forging: lines on standard output, with --json on standard error; and a bar if
    standard error is a terminal."""

    def write(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    return Teller(write, doing, (Started, Ended, GraphStep), progress_bar())


def show(as_json: bool, data: Any, text: Callable[[], None]) -> None:
    """Prints `data` with --json, else what `text` prints."""
    if as_json:
        print(json.dumps(data, indent=2))
    else:
        text()


def say(line: str) -> None:
    """Prints a line. Text of records in it may come from anywhere: it is escaped."""
    print(printable(line))


def table(headers: Sequence[str], rows: Iterable[Sequence[str | list[str]]]) -> None:
    """Prints rows of cells; a list is a cell of several lines. Headers are for terminals. In a file
    or pipe nothing is cut; at a terminal only the last column wraps."""
    made = Table(box=None, pad_edge=False, show_header=any(headers) and Console().is_terminal)
    for header in headers[:-1]:
        made.add_column(header, no_wrap=True)
    made.add_column(headers[-1], overflow="fold")
    for row in rows:
        made.add_row(*map(_cell, row))
    draw(made)


def show_facts(facts: Mapping[str, str | list[str]]) -> None:
    """Prints a summary: names, each with a line or lines. Names without any are left out."""
    table(("", ""), [(name, text) for name, text in facts.items() if text])


def _cell(content: str | list[str]) -> Text:
    if isinstance(content, str):
        return Text(printable(content), _STYLES.get(content, ""))
    return Text("\n".join(map(printable, content)))


def draw(made: RenderableType) -> None:
    """Prints a table or tree of rich's, without spaces at the ends of lines."""
    console = Console()
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        print(line.rstrip())
