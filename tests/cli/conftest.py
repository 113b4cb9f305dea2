"""What tests of the command line share."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from cyclopts import App

from tensortide.cli import console
from tests.cli.server import UNHURRIED_S


@pytest.fixture(scope="package", autouse=True)
def _silent() -> Iterator[None]:
    """Have runs in this process print no lines of progress, as those of the server."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(console, "LINE_S", UNHURRIED_S)
        yield


@pytest.fixture(scope="package", autouse=True)
def _read_once() -> Iterator[None]:
    """Have runs in this process take the options of a verb from the first of them: to read them from its function takes
    longer than most runs."""
    assemble, read = App.assemble_argument_collection, dict[object, tuple[Any, dict[int, object]]]()

    def assembled(app: App, *, default_parameter: Any = None, parse_docstring: bool = False) -> Any:
        if default_parameter is not None:
            return assemble(app, default_parameter=default_parameter, parse_docstring=parse_docstring)
        key = (app.default_command, parse_docstring)
        if key not in read:
            found = assemble(app, parse_docstring=parse_docstring)
            parts = [part for one in found for part in (one.field_info, one.parameter, one.hint)]
            read[key] = (found, {id(part): part for part in parts})
        found, shared = read[key]
        return copy.deepcopy(found, {**shared})  # a run writes into it what was typed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(App, "assemble_argument_collection", assembled)
        yield
