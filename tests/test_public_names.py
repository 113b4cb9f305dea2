"""Public names stay what they are, whichever modules are imported: no room takes the place of a function."""

from __future__ import annotations

import json
import subprocess
import sys

import tensortide

MODULES = {"errors": "tensortide.errors", "live": "tensortide.run.live"}
"""Public names that are modules."""

IMPORT_ALL = """
import importlib, pkgutil
import tensortide
for module in pkgutil.walk_packages(tensortide.__path__, "tensortide."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
RESOLVE = """
import json, types
import tensortide
found = {}
for name in tensortide.__all__:
    value = getattr(tensortide, name)
    module = isinstance(value, types.ModuleType)
    found[name] = ["module", value.__name__] if module else ["name", f"{value.__module__}:{value.__qualname__}"]
print(json.dumps(found))
"""


def resolved(before: str) -> dict[str, list[str]]:
    """Kind and place of every public name in a fresh interpreter that has run ``before``."""
    done = subprocess.run([sys.executable, "-c", before + RESOLVE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_importing_every_module_leaves_the_public_names_alone() -> None:
    found = resolved(IMPORT_ALL)
    assert sorted(found) == sorted(tensortide.__all__)
    for name, (kind, place) in found.items():
        if name in MODULES:
            assert (kind, place) == ("module", MODULES[name])
        else:
            assert kind == "name"
            assert place.startswith("tensortide.")
            assert place.endswith(f":{name}")


def test_the_check_sees_a_room_in_the_place_of_a_function() -> None:
    found = resolved("import tensortide\nimport tensortide.errors as room\ntensortide.count = room\n")
    assert found["count"] == ["module", "tensortide.errors"]
