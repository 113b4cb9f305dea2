"""The programs of the reference data cost what was derived for them by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tensortide
from tensortide.cost import count
from tensortide.cost.parameters import model_sizes
from tests.importers.exported.archives import macs, opened
from tests.marks import some_slow

NAMES = ("cond", "convs", "embedding_loss", "embedding_loss_joint", "gpt2_2l", "mlp", "moe_topk", "recurrent",
         "resnet18_w8")  # fmt: skip


def truth(reference: Path, name: str) -> dict[str, Any]:
    """The derived figures of one program; a skip where its file is not here."""
    folder = reference / "importers"
    whole = folder / "truth.json"
    models = json.loads((whole if whole.exists() else folder / "pt2" / "truth.json").read_text())["models"]
    if f"pt2/{name}" not in models:
        pytest.skip("only with the whole reference data")
    return {**models[f"pt2/{name}"], "file": folder / "pt2" / f"{name}.pt2"}


@pytest.mark.parametrize("name", NAMES)
def test_products_and_parameters_of_a_file_are_those_derived(reference: Path, name: str) -> None:
    expected = truth(reference, name)
    graph = opened(expected["file"])
    counted = count(graph, strict=True)
    assert counted.total.macs == (max(expected["branches"].values()) if name == "cond" else expected["macs"])
    sizes, parameters = model_sizes(graph), expected["parameters"]
    assert (sizes.parameters, sizes.parameter_bytes) == (parameters["learned"], parameters["learned_bytes"])
    assert (sizes.buffers, sizes.buffer_bytes) == (parameters["buffers"], parameters["buffer_bytes"])
    assert counted.total.cost.active_macs == expected.get("active_macs", counted.total.macs)


@pytest.mark.parametrize("name", some_slow(NAMES, {"gpt2_2l", "resnet18_w8"}))
def test_a_program_in_memory_is_the_one_in_the_file(reference: Path, name: str) -> None:
    file = truth(reference, name)["file"]
    of_file, of_program = opened(file), opened(torch.export.load(file))
    assert [op.name for op in of_file] == [op.name for op in of_program]
    assert count(of_file).total == count(of_program).total
    assert tensortide.timeline(of_file).peak_bytes == tensortide.timeline(of_program).peak_bytes
    assert model_sizes(of_file) == model_sizes(of_program)


def test_the_arms_of_a_conditional_exclude_each_other(reference: Path) -> None:
    expected = truth(reference, "cond")
    graph = opened(expected["file"])
    arms = {graph.branches[op.op.branch].arm for op in graph if op.op.branch >= 0}
    assert arms == {0, 1}
    assert count(graph).total.macs < sum(expected["branches"].values())


def test_a_joint_program_has_phases_and_gradients(reference: Path) -> None:
    expected = truth(reference, "embedding_loss_joint")
    graph = opened(expected["file"])
    by_phase = dict.fromkeys(expected["phases"], 0)
    for op, found in zip(graph, count(graph).costs, strict=True):
        by_phase[str(op.phase)] += found.cost.macs if found.cost else 0
    assert by_phase == expected["phases"]
    gradients = {entry.name for entry in graph.named if entry.role == "gradient"}
    assert gradients == {"e.weight.grad", "a.weight.grad", "a.bias.grad", "o.weight.grad", "o.bias.grad"}
    assert model_sizes(graph).gradient_bytes == expected["parameters"]["learned_bytes"]


def test_tied_weights_are_one_tensor_with_two_names(reference: Path) -> None:
    graph = opened(truth(reference, "gpt2_2l")["file"])
    tensors = {entry.name: entry.tensor for entry in graph.named}
    assert tensors["te.weight"] == tensors["head.weight"]


@pytest.mark.parametrize("sizes", [(8, 32), (1, 7)])
def test_symbols_take_values(reference: Path, sizes: tuple[int, int]) -> None:
    batch, seq = sizes
    file = truth(reference, "gpt2_2l")["file"]
    expected = batch * seq * (2 * 12 * 32 * 32 + 32 * 61) + 2 * 2 * batch * seq * seq * 32
    assert macs(file, hyperparameters={"ids.0": batch, "s27": seq}) == expected
    assert macs(file, bind=("ids=batch,seq",), hyperparameters={"batch": batch, "seq": seq}) == expected


def test_sample_inputs_are_never_unpickled(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (reference / "importers" / "bad" / "pt2_pickle_sample_inputs.pt2").resolve()
    monkeypatch.chdir(tmp_path)
    graph = opened(file)
    assert count(graph).total.macs == 4 * 11392
    assert not list(tmp_path.iterdir())


def test_a_bare_pickle_is_refused(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (reference / "importers" / "bad" / "plain_pickle.pt2").resolve()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tensortide.errors.TensortideError, match=r"plain_pickle\.pt2 is nothing that tensortide reads"):
        opened(file)
    assert not list(tmp_path.iterdir())


def test_a_file_needs_no_pytorch(reference: Path) -> None:
    file = reference / "importers" / "pt2" / "gpt2_2l.pt2"
    code = (
        "import sys, tensortide\n"
        f"macs = tensortide.count(tensortide.open({str(file)!r}).graph).total.macs\n"
        "print(macs, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["556160", "False"]
