"""Built-in examples exported by PyTorch cost what their capture costs, from memory and from a file."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, experimental

import tensortide
from tensortide.cost import count
from tensortide.cost.parameters import model_sizes
from tensortide.examples import find
from tests.examples.tiny import TINY
from tests.importers.exported.archives import opened, saved

FAST = ("mlp", "lstm")
SLOW = ("gpt2", "vit", "alexnet", "vgg", "mobilenet_v2", "bert", "llama", "mixtral", "transformer", "rnn_lm", "word_lm",
        "hf_gpt2", "hf_llama", "hf_bert", "hf_vit", "hf_t5")  # fmt: skip
TRAINED = ("mlp", "gpt2")


class WithLoss(nn.Module):
    """The model of an example, with its loss."""

    def __init__(self, name: str) -> None:
        super().__init__()
        parts: Any = inspect.unwrap(find(name).load())
        settings = {key: value for key, value in TINY[name].items() if key in inspect.signature(parts).parameters}
        self.model, self.inputs, self.loss = parts(**settings)

    def forward(self, inputs: Any) -> Any:
        given = self.model(**inputs) if isinstance(inputs, Mapping) else self.model(*inputs)
        return self.loss(given)


def exported(model: WithLoss) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of what it uses itself
        return torch.export.export(model, (model.inputs,))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_an_exported_example_has_the_products_and_parameters_of_its_capture(name: str, tmp_path: Path) -> None:
    if not find(name).available:
        pytest.skip("needs a package that is not installed")
    model = WithLoss(name)
    program = exported(model)
    graphs = [tensortide.capture(model, (model.inputs,)), opened(program), opened(saved(program, tmp_path / "x.pt2"))]
    assert len({count(graph).total.macs for graph in graphs}) == 1
    sizes = [model_sizes(graph) for graph in graphs]
    assert len({(size.parameters, size.parameter_bytes, size.trainable) for size in sizes}) == 1
    assert sizes[1].buffers == sizes[2].buffers


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRAINED)
def test_a_joint_program_has_the_products_of_the_training_step(name: str) -> None:
    model = WithLoss(name)
    joint = opened(experimental._export_forward_backward(exported(model)))
    step = tensortide.capture(model, (model.inputs,), loss="output")
    assert count(joint).total.macs == count(step).total.macs
    assert model_sizes(joint).gradient_bytes == model_sizes(step).gradient_bytes


def test_a_symbol_gives_the_products_of_another_batch() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    batch = Dim("batch")
    program = torch.export.export(model, (torch.randn(4, 6),), dynamic_shapes=({0: batch},))
    graph = opened(program, bind=("input=batch,_",), hyperparameters={"batch": 10})
    assert count(graph).total.macs == 10 * (6 * 8 + 8 * 3)
    captured = tensortide.capture(model, (torch.randn(10, 6),))
    assert count(graph).total.macs == count(captured).total.macs
    assert tensortide.timeline(graph).peak_bytes <= tensortide.timeline(captured).peak_bytes
