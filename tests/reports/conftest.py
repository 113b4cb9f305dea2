"""Documents of the small graphs, and pages in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

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


@pytest.fixture
def open_html(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """A function that opens a page from a file, without a network. Any error in it, and any request that leaves the
    file, fails the test."""
    problems: list[str] = []
    contexts = []

    def watch(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            problems.append(f"request: {request.url}")

    def opened(html: str, width: int = 1280) -> Page:
        path = tmp_path / "report.html"
        path.write_text(html, "utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("request", watch)
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=30_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []
