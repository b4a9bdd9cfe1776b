"""`cudaforge report`: a page on a model, a region or a cache."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..report import report_on
from .output import Command, absolute, cache_dir_option, complete_files, json_option, show


@click.command("report", cls=Command)
@click.argument(
    "target",
    required=False,
    default="",
    metavar="[SCRIPT.py:FACTORY | KEY]",
    shell_complete=complete_files,
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(readable=False),
    default="",
    callback=absolute,
    help="The page to write.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="The device of a script's model.",
)
@click.option("--train", is_flag=True, help="The graphs of training, of a script's model.")
@cache_dir_option
@json_option
def command(target: str, html: str, device: str, train: bool, cache_dir: str, as_json: bool) -> int:
    """Write a page on a model, a region or the whole cache; with --json print its data.

    Writes one HTML file with the times of graphs and regions, a roofline plot and every kernel that
    was tried. The page loads nothing from a network. Nothing is forged or compiled for it.

    SCRIPT.py:FACTORY names a function without arguments that returns (model, inputs). The script is
    run: use only scripts that you trust. KEY is the first digits of a region's key.
    """
    from ..report.html import write

    if not (html or as_json):
        raise click.UsageError("give --html FILE, --json or both")
    data = report_on(target, html, cache_dir, device, train)
    if html:
        write(data, html)
    show(as_json, asdict(data), lambda: print(f"written: {html}"))
    return 0
