"""What tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensortide.cli import source
from tests.cli.server import UNHURRIED_S


@pytest.fixture(scope="package", autouse=True)
def _silent() -> Iterator[None]:
    """Have runs in this process print no lines of progress, as those of the server."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source, "LINE_S", UNHURRIED_S)
        yield
