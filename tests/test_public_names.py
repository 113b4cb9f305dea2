"""Public names stay what they are, whichever modules are imported: no room takes the place of a function."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import pydoc
import rlcompleter
import subprocess
import sys
import types

import pytest

import tensortide
from tensortide.plans.planned import Frontier, Planned
from tensortide.studies.scale.study import Scale

MODULES = {"errors": "tensortide.errors", "live": "tensortide.run.live"}
"""Public names that are modules."""

IN_FRESH_INTERPRETER = """
import importlib, json, pkgutil, types
import tensortide

def found():
    for name in tensortide.__all__:
        value = getattr(tensortide, name)
        module = isinstance(value, types.ModuleType)
        yield name, ["module", value.__name__] if module else ["name", f"{value.__module__}:{value.__qualname__}"]

for room in pkgutil.iter_modules(tensortide.__path__, "tensortide."):
    if not room.name.endswith("__main__"):
        importlib.import_module(room.name)
print(json.dumps(dict(found())))
tensortide.count = tensortide.errors
print(json.dumps(dict(found())))
"""
"""Prints kind and place of every public name after all rooms are imported (modules in them become attributes of their
room, not of the package), then again after a room took the place of a function."""


def assert_in_place(kind: str, name: str, place: str) -> None:
    """A public name is the function or class of its room, or one of the modules."""
    if name in MODULES:
        assert (kind, place) == ("module", MODULES[name])
    else:
        assert kind == "name"
        assert place.startswith("tensortide.")
        assert place.endswith(f":{name}")


def test_public_names_are_in_place_where_rooms_are_imported() -> None:
    for room in pkgutil.iter_modules(tensortide.__path__, "tensortide."):
        if not room.name.endswith("__main__"):
            importlib.import_module(room.name)
    for name in tensortide.__all__:
        value = getattr(tensortide, name)
        if isinstance(value, types.ModuleType):
            assert_in_place("module", name, value.__name__)
        else:
            assert_in_place("name", name, f"{value.__module__}:{value.__qualname__}")


def test_help_signatures_and_completion_know_every_public_name() -> None:
    assert pydoc.render_doc(tensortide)
    values = [getattr(tensortide, name) for name in tensortide.__all__]
    for value in (*values, Frontier, Planned, Scale):
        assert pydoc.render_doc(value)
        if not isinstance(value, types.ModuleType) and not (isinstance(value, type) and issubclass(value, Exception)):
            inspect.signature(value)
    completer, found = rlcompleter.Completer({"tensortide": tensortide}), list[str]()
    while (text := completer.complete("tensortide.", len(found))) is not None:
        found.append(text.partition("(")[0])
    assert sorted(found) == sorted(f"tensortide.{name}" for name in tensortide.__all__)


@pytest.mark.slow
def test_importing_every_room_leaves_the_public_names_alone() -> None:
    done = subprocess.run([sys.executable, "-c", IN_FRESH_INTERPRETER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, spoilt = map(json.loads, done.stdout.splitlines())
    assert sorted(found) == sorted(tensortide.__all__)
    for name, (kind, place) in found.items():
        assert_in_place(kind, name, place)
    assert spoilt == {**found, "count": ["module", "tensortide.errors"]}
