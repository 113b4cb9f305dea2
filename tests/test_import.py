"""Importing tensortide is cheap, and loads no framework: whoever only reads a saved graph needs none."""

from __future__ import annotations

import functools
import json
import pkgutil
import subprocess
import sys
import tempfile
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


ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys

for code in {codes!r}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(sys.stdout):
        with contextlib.suppress(SystemExit):
            exec(code)
    print(json.dumps(list(sys.modules)))
"""

ROOMS_WITHOUT = [name for name in ROOMS if name not in FRAMEWORK_ROOMS]
COMMANDS: tuple[list[str], ...] = ([], ["--help"], ["--version"], ["repotr", "x"], ["doctor"])
NAMES_OF_VERBS = [name for verbs in VERBS.values() for name in verbs]
BACKEND = "import tensortide.importers.keras.backend"


WITHOUT_FRAMEWORKS = """
import os, sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "jax", "keras", "tensorflow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
os.chdir(FOLDER)
from tensortide.cli import main
for verb in ("report --html x.html", "count", "memory", "fit --memory 16GiB", "draw -o x.svg"):
    name, *options = verb.split()
    try:
        main([name, "./x.tide", *options])
    except SystemExit as end:
        assert not end.code, verb
"""
"""Verbs called on a saved graph in a folder, where no framework can be imported."""


def called(*arguments: str) -> str:
    """The code that calls the command line."""
    return f"from tensortide.cli import main\nmain({list(arguments)!r})"


@functools.cache
def imported() -> dict[str, set[str]]:
    """Names of all modules that a fresh interpreter has imported after each of these, which it runs in this order: what
    may import least comes first."""
    codes = ["import tensortide", *(called(*arguments) for arguments in COMMANDS), BACKEND]
    codes += [f"import {name}" for name in ROOMS_WITHOUT] + [called(name, "--help") for name in NAMES_OF_VERBS]
    b = tensortide.GraphBuilder("mlp")
    x, w = b.input("x", (8, 16)), b.parameter("w", (16, 4))
    b.output(b.op("aten.mm", x, w, out=(8, 4)))
    with tempfile.TemporaryDirectory() as folder:
        save(b.build(), Path(folder, "x.tide"))
        last = WITHOUT_FRAMEWORKS.replace("FOLDER", repr(folder))
        printed = in_fresh_interpreter(ONE_AFTER_THE_OTHER.format(codes=[*codes, last]))
        assert Path(folder, "x.html").exists()
    codes.append(WITHOUT_FRAMEWORKS)
    return {code: set(json.loads(line)) for code, line in zip(codes, printed.splitlines(), strict=True)}


def import_seconds(module: str) -> float:
    """CPU time that importing ``module`` adds to a bare interpreter, once."""
    code = f"import time\nbefore = time.process_time()\nimport {module}\nprint(time.process_time() - before)"
    return float(in_fresh_interpreter(code))


def test_importing_tensortide_loads_nothing_heavy() -> None:
    assert imported()["import tensortide"].isdisjoint(HEAVY)


@pytest.mark.parametrize("module", ROOMS_WITHOUT)
def test_only_the_rooms_for_frameworks_load_one(module: str) -> None:
    assert imported()[f"import {module}"].isdisjoint(FRAMEWORKS)


BEFORE_A_VERB = (*HEAVY, "msgspec", "numba", "tensortide.graph", "tensortide.importers", "tensortide.cli.report")
"""Packages and rooms that the command line does without until a verb is called."""


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_command_line_imports_no_verb_before_one_is_called(arguments: list[str]) -> None:
    found = imported()[called(*arguments)]
    assert "tensortide.cli" in found
    assert found.isdisjoint(BEFORE_A_VERB)


def test_the_check_sees_what_is_loaded() -> None:
    assert not imported()["import tensortide.plans"].isdisjoint(HEAVY)
    assert not imported()[called("plan", "--help")].isdisjoint(BEFORE_A_VERB)


@pytest.mark.parametrize("verb", NAMES_OF_VERBS)
def test_the_help_of_a_verb_imports_no_framework(verb: str) -> None:
    found = imported()[called(verb, "--help")]
    assert f"tensortide.cli.{verb}" in found
    assert found.isdisjoint(FRAMEWORKS)


def test_importing_tensortide_takes_under_a_tenth_of_a_cpu_second() -> None:
    assert min(import_seconds("tensortide") for _ in range(5)) < 0.1


def test_the_clock_sees_a_slow_import() -> None:
    assert import_seconds("sympy") > 0.1


def test_a_saved_graph_needs_no_framework() -> None:
    assert imported()[WITHOUT_FRAMEWORKS].isdisjoint(FRAMEWORKS)


def test_the_metrics_of_keras_need_no_torch() -> None:
    assert "torch" not in imported()[BACKEND]
