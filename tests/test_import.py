"""Importing tensortide is cheap, and loads no framework: whoever only reads a saved graph needs none."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tensortide
from tensortide.cli.app import VERBS
from tensortide.graph import save

HEAVY = ("jax", "keras", "matplotlib", "numpy", "onnx", "sympy", "tensorflow", "torch", "transformers")
"""What a bare ``import tensortide`` may not load."""

FRAMEWORKS = {"jax", "keras", "onnx", "tensorflow", "torch", "transformers"}
FRAMEWORK_ROOMS = {
    "tensortide.recorder",
    "tensortide.importers",
    "tensortide.profile",
    "tensortide.examples",
    "tensortide.run",
}
ROOMS = sorted(f"tensortide.{module.name}" for module in pkgutil.iter_modules(tensortide.__path__))


def in_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy_after(statement: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    return set(json.loads(in_fresh_interpreter(code)))


def import_seconds(module: str) -> float:
    """CPU time that importing ``module`` adds to a bare interpreter, once."""
    code = f"import time\nbefore = time.process_time()\nimport {module}\nprint(time.process_time() - before)"
    return float(in_fresh_interpreter(code))


def test_importing_tensortide_loads_nothing_heavy() -> None:
    assert heavy_after("import tensortide") == set()


@pytest.mark.parametrize("module", [name for name in ROOMS if name not in FRAMEWORK_ROOMS])
def test_only_the_rooms_for_frameworks_load_one(module: str) -> None:
    assert heavy_after(f"import {module}") & FRAMEWORKS == set()


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_the_check_sees_what_is_loaded(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    assert package in heavy_after(f"import tensortide, {package}")


BEFORE_A_VERB = (*HEAVY, "msgspec", "numba", "tensortide.graph", "tensortide.importers", "tensortide.cli.report")
"""Packages and rooms that the command line does without until a verb is called."""


def imported_by(*arguments: str) -> set[str]:
    """Modules that a fresh interpreter has imported after the command line ran with ``arguments``."""
    code = f"""
import contextlib, io, json, sys
from tensortide.cli import main
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
    with contextlib.suppress(SystemExit):
        main({list(arguments)!r})
print(json.dumps(list(sys.modules)))
"""
    return set(json.loads(in_fresh_interpreter(code)))


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["repotr", "x"], ["doctor"]], ids=" ".join)
def test_the_command_line_imports_no_verb_before_one_is_called(arguments: list[str]) -> None:
    assert imported_by(*arguments).isdisjoint(BEFORE_A_VERB)


@pytest.mark.parametrize("verb", [[name] for verbs in VERBS.values() for name in verbs], ids=" ".join)
def test_the_help_of_a_verb_imports_no_framework(verb: list[str]) -> None:
    found = imported_by(*verb, "--help")
    assert f"tensortide.cli.{verb[0]}" in found
    assert found.isdisjoint(FRAMEWORKS)


def test_importing_tensortide_takes_under_a_tenth_of_a_cpu_second() -> None:
    assert min(import_seconds("tensortide") for _ in range(5)) < 0.1


def test_the_clock_sees_a_slow_import() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    assert import_seconds("torch") > 0.1


WITHOUT_TORCH = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "keras", "tensorflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
from tensortide.cli import main
for verb in ("report --html x.html", "count", "memory", "fit --memory 16GiB", "draw -o x.svg"):
    name, *options = verb.split()
    try:
        main([name, sys.argv[1], *options])
    except SystemExit as end:
        assert not end.code, verb
"""


def test_a_saved_graph_needs_no_framework(tmp_path: Path) -> None:
    b = tensortide.GraphBuilder("mlp")
    x, w = b.input("x", (8, 16)), b.parameter("w", (16, 4))
    b.output(b.op("aten.mm", x, w, out=(8, 4)))
    save(b.build(), tmp_path / "x.tide")
    command = [sys.executable, "-c", WITHOUT_TORCH, "./x.tide"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.html").exists()


def test_the_metrics_of_keras_need_no_torch() -> None:
    assert "torch" not in heavy_after("import tensortide.importers.keras.backend")
