"""The page of `cudaforge report` in a browser: headless Chromium, driven by playwright."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cudaforge_backend.report import html
from reports import HOSTILE, hostile_report

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
    pytest.skip(
        "the page of a report is NOT TESTED: it needs Chromium and the Python package playwright "
        "(tests/requirements.txt)",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(params=[375, 1280])
def page(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page of a hostile report, on a phone and on a desk. Fails on anything in the console, on
    a dialog and on a request but that for the page itself."""
    file = tmp_path / "page.html"
    html.write(hostile_report(), file)
    view = {"width": request.param, "height": 812}
    context = browser.new_context(viewport=view, color_scheme="light")
    opened = context.new_page()
    seen: list[str] = []
    opened.on("console", lambda message: seen.append(message.text))
    opened.on("pageerror", lambda error: seen.append(str(error)))
    opened.on("dialog", lambda dialog: (seen.append(dialog.message), dialog.dismiss()))
    opened.on("request", lambda asked: seen.append(asked.url) if asked.url != file.as_uri() else 0)
    opened.goto(file.as_uri())
    opened.wait_for_selector(".plot svg a")
    yield opened
    opened.wait_for_timeout(100)
    context.close()
    assert seen == []


def is_too_wide(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def first_column(page: Any) -> list[str]:
    cells = page.locator("#regions tbody tr td:first-child a").all_inner_texts()
    return [cell.partition(" ")[0] for cell in cells]


def test_columns_are_sorted(page: Any) -> None:
    assert first_column(page) == ["cumsum", "argmax", "softmax"]  # by share
    head = page.locator("#regions th").first
    share = page.locator("#regions th", has_text="Share")
    assert share.get_attribute("aria-sort") == "descending"
    for order, rows in (("ascending", "acs"), ("descending", "sca")):
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == order
        assert [name[0] for name in first_column(page)] == list(rows)
    assert share.get_attribute("aria-sort") is None


def test_rows_are_filtered(page: Any) -> None:
    search = page.get_by_role("searchbox")
    search.fill("ARGMAX")
    assert first_column(page) == ["argmax"]
    assert page.locator(".count").inner_text() == "1 of 3 regions"
    search.fill("nothing has this")
    assert first_column(page) == [] and page.locator(".empty").is_visible()
    search.fill("")
    page.get_by_role("combobox").select_option("no winner")
    assert first_column(page) == ["cumsum"]


def test_a_lineage_is_opened(page: Any) -> None:
    page.locator("#regions a", has_text="softmax").click()
    place = page.locator("details.place[open]")
    assert place.count() == 1
    rounds = place.locator("details.round")
    assert rounds.count() == 2
    rounds.nth(1).locator("summary").first.press("Enter")
    assert rounds.nth(1).locator(".added").inner_text().strip() == "+  return 1;"
    assert rounds.nth(1).locator(".removed").count() == 1
    assert HOSTILE in rounds.nth(1).inner_text()
    rounds.nth(1).locator("details.source summary").click()
    assert "return 1;" in rounds.nth(1).locator("details.source pre").inner_text()
    assert not is_too_wide(page)
    assert page.locator("img").count() == 0 and page.locator("body script").count() == 2


def test_the_theme_changes(page: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light, button = page.evaluate(background), page.locator("#theme")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert button.get_attribute("aria-pressed") == "true" and page.evaluate(background) != light
    page.reload()
    assert page.evaluate(background) != light  # kept
    button.click()
    assert page.evaluate(background) == light


def test_everything_fits_and_shows(page: Any) -> None:
    for place in page.locator("details.place").all():
        place.locator("summary").first.click()
    assert not is_too_wide(page)
    assert page.locator(".plot svg a").count() == 3 and page.locator(".plot .roof").count() == 2
    assert page.locator(".track .band").count() == 2  # the control, behind its ratio and itself
    assert page.title().startswith(HOSTILE)


def test_the_keyboard_reaches_everything_and_shows_where_it_is(page: Any) -> None:
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        outline, name = page.evaluate(
            "[getComputedStyle(document.activeElement).outlineStyle, document.activeElement.tagName"
            " + (document.activeElement.closest('svg') ? ' in plot' : '')]"
        )
        if name not in ("BODY", "a in plot"):
            assert outline != "none", name
        reached.add(name.upper())
    assert {"A", "BUTTON", "INPUT", "SELECT", "SUMMARY", "A IN PLOT", "CODE"} <= reached
