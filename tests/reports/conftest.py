"""Documents of the small graphs, and pages in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tensortide.graph.model import Graph
from tensortide.reports import report
from tensortide.reports.blocks import Document
from tests.reports.graphs import tower

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page, Request

Open: TypeAlias = "Callable[..., Page]"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu-compositing",
    "--in-process-gpu",
    "--no-zygote",
    "--num-raster-threads=1",
)


@pytest.fixture(scope="session")
def graph() -> Graph:
    """A tower of four layers and one step of its training."""
    return tower()


@pytest.fixture(scope="session")
def document(graph: Graph) -> Document:
    return report(graph)


@pytest.fixture(scope="package")
def browser(chromium_path: Path) -> Iterator[Browser]:
    driver_of = pytest.importorskip("playwright.sync_api").sync_playwright
    with driver_of() as driver:
        browser = driver.chromium.launch(executable_path=str(chromium_path), args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def window(browser: Browser) -> Iterator[Page]:
    """One window without a network for all tests: another for each took three times the CPU seconds."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def open_html(window: Page, tmp_path: Path) -> Iterator[Open]:
    """A function that opens a page from a file, in place of the one before. Any error in it, and any request that
    leaves the file, fails the test."""
    problems: list[str] = []

    def watch(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            problems.append(f"request: {request.url}")

    watches: dict[str, Callable[[Any], None]] = {
        "request": watch,
        "console": lambda message: problems.append(f"console: {message.text}"),
        "pageerror": lambda error: problems.append(f"error: {error}"),
    }

    def opened(html: str, width: int = 1280) -> Page:
        path = tmp_path / "report.html"
        path.write_text(html, "utf-8")
        window.set_viewport_size({"width": width, "height": 800})
        window.goto(path.as_uri())
        window.wait_for_selector("html[data-ready]", timeout=30_000)
        return window

    for event, listener in watches.items():
        window.on(event, listener)  # type: ignore[call-overload]
    yield opened
    if window.url.startswith("file:"):
        window.evaluate("localStorage.clear()")
    window.emulate_media(media="null", color_scheme="light")
    window.mouse.move(0, 0)
    for event, listener in watches.items():
        window.remove_listener(event, listener)
    assert problems == []
