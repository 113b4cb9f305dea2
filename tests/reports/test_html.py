"""The page as text: self-contained, small, and no name in it is markup."""

from __future__ import annotations

import base64
import gzip
import json
import re

import msgspec
import pytest

from tensortide.graph.model import Meta
from tensortide.reports import report
from tensortide.reports.document import Document, to_json
from tensortide.reports.html import render_html
from tests.reports.graphs import tower

DATA = re.compile(r'<script type="application/json" id="data" data-encoding="(\w+)">(.*?)</script>', re.DOTALL)


def data_of(page: str) -> bytes:
    """The document in ``page``, as the browser would read it."""
    found = DATA.search(page)
    assert found is not None
    encoding, text = found.groups()
    return gzip.decompress(base64.b64decode(text)) if encoding == "gzip" else text.encode()


@pytest.mark.parametrize("compress", [True, False])
def test_the_page_holds_the_document(document: Document, compress: bool) -> None:
    page = render_html(document, compress=compress)
    assert json.loads(data_of(page)) == json.loads(to_json(document))
    assert (len(page) < 120_000) or not compress


def test_nothing_is_loaded_from_anywhere(document: Document) -> None:
    page = render_html(document)
    assert not re.findall(r"<(?:link|img|iframe|script[^>]*\ssrc|base|object|embed)\b", page)
    assert not re.findall(r"url\(|@import", page)
    assert set(re.findall(r"https?://[\w./]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page


def test_no_placeholder_is_left(document: Document) -> None:
    page = render_html(document, compress=True)
    assert "{{" not in DATA.sub("", page)


def test_markup_is_never_built_from_text(document: Document) -> None:
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", render_html(document))


@pytest.mark.parametrize("compress", [True, False])
def test_no_name_can_end_the_script_it_stands_in(compress: bool) -> None:
    name = "</script><b>bold</b><!--<script>"
    page = render_html(report(tower(hostile=name)), compress=compress)
    assert "<b>" not in page
    assert page.count("</script>") == 3
    assert f"{name}.0" in json.loads(data_of(page))["ops"]["paths"]


def test_the_title_is_escaped() -> None:
    graph = msgspec.structs.replace(tower(), meta=Meta(workload="<i>&"))
    assert "<title>&lt;i&gt;&amp; - tensortide</title>" in render_html(report(graph))


def test_a_notebook_gets_the_page_in_a_frame(document: Document) -> None:
    frame = document._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert frame.count("<") == 2
