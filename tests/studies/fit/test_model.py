"""``fits``: a model and its inputs against a GPU, in three lines; the model stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tensortide
from tensortide.errors import CaptureError, ExitStatus, RequestError, TensortideError, WorkloadError
from tensortide.studies.fit.model import ModelVerdict
from tensortide.timing.catalogue import device

T4 = device("T4").usable_bytes or 0


def net(width: int = 64) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Dropout(), torch.nn.Linear(width, 4))


class WithLoss(torch.nn.Module):
    """A model that returns a loss beside its output, if it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        out = self.inner(x)
        return {"out": out} if labels is None else {"loss": (out - labels).square().sum(), "out": out}


def on_meta(width: int) -> tuple[torch.nn.Module, torch.Tensor]:
    with torch.device("meta"):
        return net(width), torch.ones(2, 8)


def test_a_small_model_fits_and_says_by_how_much() -> None:
    found = tensortide.fits(net(), torch.ones(2, 8), gpu="t4")
    assert (bool(found), found.answer, found.status) == (True, "yes", ExitStatus.HOLDS)
    assert 0 < found.peak_bytes <= found.needed_bytes < found.usable_bytes == T4
    assert found.step_ns
    assert found.dominant is not None
    assert repr(found).startswith("<ModelVerdict yes: needs ")
    assert "GiB on T4; a step in " in repr(found)
    assert str(found) == str(found.document())


def test_a_model_that_nobody_could_allocate_does_not_fit() -> None:
    model, inputs = on_meta(1 << 29)
    found = tensortide.fits(model, inputs, gpu="t4")
    assert (bool(found), found.answer, found.status) == (False, "no", ExitStatus.FAILS)
    assert found.peak_bytes > T4
    assert all(each.is_meta for each in model.parameters())


def test_between_them_there_is_a_size_that_is_unsure() -> None:
    def answer(width: int) -> ModelVerdict:
        return tensortide.fits(*on_meta(width), None, gpu="t4")

    low, high = 1 << 20, 1 << 30
    while high - low > 1 << 12:
        middle = (low + high) // 2
        found = answer(middle)
        if found.answer == "unsure":
            assert not found
            assert found.status is ExitStatus.UNDECIDED
            return
        low, high = (middle, high) if found else (low, middle)
    pytest.fail("no size is unsure")


def test_on_meta_it_is_as_in_memory() -> None:
    inputs = torch.ones(2, 8)
    assert (
        tensortide.fits(net(), inputs, gpu="t4").peak_bytes
        == tensortide.fits(on_meta(64)[0], inputs, gpu="t4").peak_bytes
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", None])
def test_the_model_is_left_as_it_is(training: bool, optimizer: str | None) -> None:
    model, inputs = net().train(training), torch.ones(2, 8)
    model[0].train(not training)  # type: ignore[index]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    found = tensortide.fits(model, inputs, optimizer, gpu="t4")
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    ran = {op.name for op in found.fit.subject.graph}
    assert any("dropout" in name or "bernoulli" in name for name in ran) == (optimizer is not None)


@pytest.mark.parametrize(
    "optimizer",
    [
        "adamw",
        pytest.param(torch.optim.Adam, marks=pytest.mark.slow),
        lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    ],
)
def test_an_optimizer_is_a_name_or_makes_one(optimizer: str | Callable[..., Any]) -> None:
    def state(chosen: str | Callable[..., Any]) -> bool:
        graph = tensortide.fits(net(), torch.ones(2, 8), chosen, gpu="t4").fit.subject.graph
        return any(storage.role is tensortide.Role.OPTIMIZER_STATE for storage in graph.storages)

    assert state(optimizer)
    assert not state("sgd")


def test_the_loss_is_the_models_own_or_a_mean() -> None:
    inputs = {"x": torch.ones(2, 8)}
    own = tensortide.fits(WithLoss(), {**inputs, "labels": torch.ones(2, 4)}, gpu="t4")
    mean = tensortide.fits(WithLoss(), inputs, gpu="t4")
    given = tensortide.fits(WithLoss(), inputs, gpu="t4", loss=lambda output: output["out"].sum())
    assert any("pow" in op.name for op in own.fit.subject.graph)
    assert not any(op.name == "aten.mean.default" for op in given.fit.subject.graph)
    assert any(op.name == "aten.mean.default" for op in mean.fit.subject.graph)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("auto", "the mean of the output (give another by loss=)"),
        ("sum", "the sum of the output"),
        (torch.sum, "the given function sum"),
    ],
)
def test_the_answer_says_what_it_took_for_the_loss(loss: Any, words: str) -> None:
    found = tensortide.fits(net(), torch.ones(2, 8), gpu="t4", loss=loss)
    assert repr(found).endswith(f"; loss: {words}>")
    assert f"\nloss: {words}" in str(found)


def test_a_loss_of_the_models_own_is_said_to_be_that_and_inference_has_none() -> None:
    inputs = {"x": torch.ones(2, 8), "labels": torch.ones(2, 4)}
    assert tensortide.fits(WithLoss(), inputs, gpu="t4").loss == "the model's own loss"
    found = tensortide.fits(net(), torch.ones(2, 8), None, gpu="t4")
    assert "loss" not in repr(found) + str(found)


def test_lines_around_the_step_are_not_its_own() -> None:
    """Those of the code that asks: here, and in a test runner."""
    assert tensortide.fits(net(), torch.ones(2, 8), gpu="t4").fit.subject.graph.sources == ()
    lines = tensortide.fits(WithLoss(), {"x": torch.ones(2, 8)}, gpu="t4").fit.subject.graph.sources
    assert {line.code for line in lines} == {"out = self.inner(x)"}


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"model": 3}, WorkloadError, "fits takes a model of PyTorch and its inputs, not a int"),
        ({"gpu": "t44"}, TensortideError, "no device is called 't44'"),
        ({"gpu": 3}, RequestError, 'fits takes gpu="rtx4090", .* or gpu="24GB", a size, not 3'),
        ({"gpu": ""}, RequestError, 'fits takes gpu="rtx4090", .* a size$'),
        ({"machine": "t4"}, RequestError, "fits has no option 'machine': the GPU is gpu="),
        ({"optimizer": "adamww"}, WorkloadError, "unknown optimizer 'adamww': one of "),
        ({"optimizer": 3}, WorkloadError, "an optimizer is a name or a function of parameters, not a int"),
        ({"loss": "x"}, WorkloadError, "unknown loss 'x'.* loss=lambda output: torch.nn.functional.cross_entropy"),
        ({"model": torch.nn.ReLU()}, WorkloadError, "no parameter that requires a gradient"),
        ({"inputs": torch.ones(3, 3)}, CaptureError, "must have same reduction dim(.|\n)*in module Sequential.0"),
        ({"inputs": {"y": torch.ones(3, 3)}}, CaptureError, "unexpected keyword argument 'y'"),
        ({"inputs": None}, CaptureError, "missing 1 required positional argument"),
    ],
)
def test_what_is_wrong_is_one_message(given: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        tensortide.fits(**{"model": net(), "inputs": torch.ones(2, 8), "gpu": "t4", **given})


def test_a_size_is_a_gpu_without_times() -> None:
    found = tensortide.fits(net(), torch.ones(2, 8), gpu="24GB")
    assert found
    assert found.step_ns is None
    assert "on 24GB; " in repr(found)
