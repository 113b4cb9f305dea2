"""Each verb on a real workload, as a user runs it: text, JSON and files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tensortide.graph import load
from tests.cli.command import called, tensortide
from tests.graphs import path_of

SIZES = [f"--set={s}" for s in ("layers=2", "hidden=32", "heads=2", "seq=16", "batch=2", "vocab=100", "positions=16")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verbs")
    run(path, "capture", "gpt2", *SIZES, "-o", "gpt2.tide")
    shutil.copy(path_of("mlp"), path / "mlp.tide")
    return path


def run(folder: Path, *arguments: str, start: Callable[..., CompletedProcess[str]] = called) -> str:
    done = start(folder, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def as_json(folder: Path, *arguments: str) -> Any:
    return json.loads(run(folder, *arguments, "--json"))


def test_capture_writes_a_graph(folder: Path) -> None:
    facts = json.loads(run(folder, "capture", "gpt2", *SIZES, "-o", "again.tide", "--json", start=tensortide))
    graph = load(folder / "again.tide")
    assert facts["ops"] == len(graph) > 300
    assert facts["meta"]["hyperparameters"]["hidden"] == 32
    assert (folder / "again.tide").read_bytes() == (folder / "gpt2.tide").read_bytes()


def test_count_agrees_with_arithmetic(folder: Path) -> None:
    """Forward products of a GPT-2: per token and layer 12 h^2 + 2 s h, and the head."""
    counted = as_json(folder, "count", "gpt2.tide")
    tokens, hidden, layers, seq, vocab = 2 * 16, 32, 2, 16, 100
    forward = tokens * (layers * (12 * hidden**2 + 2 * seq * hidden) + hidden * vocab)
    facts, phases = (counted["sections"]["cost"][kind] for kind in ("facts", "tables"))
    macs = dict(zip(phases["phases"]["phase"], phases["phases"]["macs"], strict=True))
    assert macs["forward"] == forward
    assert macs["backward"] == 2 * forward
    assert facts["covered_ops"] == facts["costed_ops"]
    text = run(folder, "count", "gpt2.tide", "--depth", "1", start=tensortide)
    assert "blocks.[0-1] x2" in text
    assert "  qkv x2 " not in text
    assert "  qkv x2 " in run(folder, "count", "gpt2.tide")
    assert "100 % of ops" in text


def test_memory_names_what_is_alive_at_the_peak(folder: Path) -> None:
    shown = as_json(folder, "memory", "gpt2.tide")["sections"]["memory"]
    peak = shown["facts"]["peak_bytes"]
    curve = shown["curves"]["resident"]
    assert max(map(sum, zip(*curve["stack"].values(), strict=True))) == peak
    assert sum(shown["tables"]["roles"]["size_bytes"]) == peak
    assert "x_ns" in curve
    text = run(folder, "memory", "gpt2.tide")
    assert "Resident at the peak" in text
    assert "predicted for NVIDIA A100" in text


def test_explain_shows_rule_and_substitution(folder: Path) -> None:
    text = run(folder, "count", "gpt2.tide", "--explain", "addmm")
    assert "products.py:" in text
    assert "m = 32" in text
    assert (
        as_json(folder, "count", "gpt2.tide", "--explain", "addmm")["sections"]["rules"]["facts"]["rule"]
        == "aten::addmm"
    )


def test_a_rule_is_offered_for_what_has_none(folder: Path, tmp_path: Path) -> None:
    assert "every op has a cost rule" in run(folder, "count", "gpt2.tide", "--missing")
    (tmp_path / "w.py").write_text(CUSTOM)
    text = run(tmp_path, "count", "w.py:workload", "--missing")
    assert 'rule("mylib::mix"' in text
    assert "covers" in text
    done = called(tmp_path, "count", "w.py:workload", "--strict")
    assert done.returncode == 3
    assert "mylib.mix" in done.stderr
    assert "mylib.mix" in run(tmp_path, "count", "w.py:workload")


CUSTOM = """
import torch

@torch.library.custom_op("mylib::mix", mutates_args=())
def mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b

@mix.register_fake
def _(a, b):
    return a.new_empty(a.shape[0], b.shape[1])

def workload():
    x = torch.randn(64, 64)
    return lambda: mix(x, x)
"""


def test_report_writes_every_format(folder: Path) -> None:
    names = {"html": "r.html", "trace": "t.json", "memory-viz": "s.pickle", "csv": "o.csv", "markdown": "r.md"}
    files = [part for kind, name in names.items() for part in (f"--{kind}", name)]
    text = run(folder, "report", "gpt2.tide", *files, start=tensortide)
    for name in names.values():
        assert (folder / name).stat().st_size > 500
        assert f"wrote {name}" in text
    trace = json.loads((folder / "t.json").read_text())
    assert trace["traceEvents"]
    assert "predicted for NVIDIA A100" in trace["otherData"]["subtitle"]


def test_csv_writes_the_main_table_and_those_that_are_named(folder: Path) -> None:
    run(folder, "report", "mlp.tide", "--csv", "ops.csv", "--csv", "modules.modules=mods.csv", "--csv", "sheets")
    assert (folder / "sheets" / "ops.csv").read_bytes() == (folder / "ops.csv").read_bytes()
    assert (folder / "sheets" / "modules.csv").read_bytes() == (folder / "mods.csv").read_bytes()
    assert (folder / "mods.csv").read_text().startswith("depth,module,type,")
    run(folder, "report", "mlp.tide", "--csv", "./a=b.csv")
    assert (folder / "a=b.csv").read_bytes() == (folder / "ops.csv").read_bytes()
    done = called(folder, "report", "mlp.tide", "--csv", "none=a.csv")
    assert done.returncode == 2
    assert "no table is called 'none': verdict.devices, cost.phases" in done.stderr


def test_count_writes_files(folder: Path) -> None:
    text = run(folder, "count", "mlp.tide", "--csv", "count.csv", "--markdown", "count.md", "--html", "count.html")
    assert "wrote count.csv" in text
    assert (folder / "count.csv").read_text().startswith("op,name,module,")
    assert "## Where it goes" in (folder / "count.md").read_text()
    run(folder, "count", "mlp.tide", "--explain", "addmm", "--markdown", "addmm.md")
    assert "aten::addmm" in (folder / "addmm.md").read_text()
    run(folder, "count", "mlp.tide", "--ops", "--csv", "formulas.csv")
    assert "flops_formula" in (folder / "formulas.csv").read_text()


def test_memory_shows_phases_modules_and_the_allocator(folder: Path) -> None:
    text = run(folder, "memory", "mlp.tide", "--allocator", "cuda")
    for part in ("of the step's", "Memory by module", "max_memory_reserved"):
        assert part in text
    assert "max_memory_reserved" not in run(folder, "memory", "mlp.tide")
    facts = as_json(folder, "memory", "mlp.tide", "--allocator", "cuda")["sections"]["memory"]["facts"]
    assert facts["peak_reserved_bytes"] >= facts["peak_allocated_bytes"] >= 0.9 * facts["peak_bytes"]
    assert "allocator" not in as_json(folder, "memory", "mlp.tide")["sections"]["memory"]["facts"]


def test_counters_of_a_gpu_are_those_of_its_allocator(folder: Path) -> None:
    facts = as_json(folder, "memory", "mlp", "--device", "cuda", "--allocator", "cuda")["sections"]["memory"]["facts"]
    for kind in ("allocated", "reserved"):
        assert facts[f"steady_{kind}_bytes"] == facts[f"peak_{kind}_bytes"] > 0


def test_a_file_to_standard_output_comes_alone(folder: Path) -> None:
    def alone(kind: str) -> str:
        return run(folder, "report", "gpt2.tide", f"--{kind}", "/dev/stdout", start=tensortide)

    assert alone("markdown").startswith("# gpt2")
    assert "wrote" not in alone("html").rpartition("</html>")[2]
    assert json.loads(alone("trace"))["traceEvents"]


def test_names_with_spaces_and_other_scripts(folder: Path) -> None:
    assert "wrote a b ünï 名.html" in run(folder, "report", "mlp.tide", "--html", "a b ünï 名.html")


def test_quiet_says_nothing_of_files(folder: Path) -> None:
    assert "wrote" not in run(folder, "report", "mlp.tide", "--markdown", "q.md", "--quiet")
    assert run(folder, "capture", "mlp", "-o", "q.tide", "--quiet") == ""


def test_examples_are_listed_with_their_hyperparameters(folder: Path) -> None:
    assert "gpt2" in run(folder, "capture", "--list")
    facts = as_json(folder, "capture", "gpt2", "--list")["sections"]["examples"]["facts"]
    assert facts["layers"] == 12
