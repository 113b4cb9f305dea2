"""Every workload trains for real, and dispatches the same ops on the fake tensors of a capture."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import pytest
import torch

from tensortide.examples import examples, find
from tensortide.recorder.fake_mode import StepFakeMode, same_paths
from tests.examples.probe import Dispatched, Recorder, parameters
from tests.examples.tiny import LARGE, OF_A_KIND, OTHER_SIZES, TINY, Settings
from tests.marks import some_slow

NAMES = [
    pytest.param(
        e.name,
        marks=[
            pytest.mark.skipif(not e.available, reason=f"needs {', '.join(e.missing)}"),
            *([pytest.mark.slow] if e.name in LARGE | OF_A_KIND else []),
        ],
    )
    for e in examples()
    if e.name not in OTHER_SIZES | {"resnet50", "resnet18_cifar"}
]

_FORWARD = ("gpt2", "hf_gpt2", "lstm", "mlp", "transformer", "treelstm", "unet", "unrolled_gan", "word2vec")
FORWARD = [
    name if name.values[0] in _FORWARD else pytest.param(*name.values, marks=[*name.marks, pytest.mark.slow])
    for name in NAMES
]
"""Inputs of every kind, and the workload that has a step of its own: the others share one way to run their forward."""

SETTINGS: list[tuple[str, Settings]] = [
    ("vgg", {"norm": True}),
    ("rnn_lm", {"cell": "lstm"}),
    ("unrolled_rnn", {"cell": "gru"}),
    ("word_lm", {"tied": True}),
    ("mixtral", {"dispatch": "dense"}),
    ("bert", {"objective": "masked"}),
    ("gpt2", {"dropout": 0.1}),
    ("llama", {"kv_heads": 6, "dtype": "bfloat16"}),
    ("unrolled_gan", {"unroll": 0}),
    ("hf_gpt2", {"attention": "eager"}),
]
"""Other ways to build a workload than its defaults: every kind of setting at one workload."""

MORE_SETTINGS: list[tuple[str, Settings]] = [
    ("resnet", {"depth": 8, "variant": "cifar", "image": 8}),
    ("densenet", {"depth": 100}),
    ("mixtral", {"capacity": 0.5}),
    ("gpt2", {"attention": "eager", "dtype": "bfloat16"}),
    ("mixtral", {"dtype": "bfloat16"}),
    ("bert", {"dropout": 0.0}),
    ("transformer", {"attention": "eager"}),
    ("hf_llama", {"attention": "eager", "dtype": "bfloat16"}),
    ("hf_bert", {"attention": "eager", "objective": "masked"}),
    ("hf_mixtral", {"dispatch": "batched_mm", "dtype": "float32"}),
]
"""The same kinds at others."""

ALIKE = {"alexnet", "nmt", "resnet18", "transformer", "vit"}
"""Workloads of the layers of others."""

FAKE = [
    pytest.param(*name.values, marks=[*name.marks, pytest.mark.slow])
    if name.values[0] in {*dict(SETTINGS), *ALIKE}
    else name
    for name in NAMES
]
"""Workloads that no other settings run on fake tensors."""

SHALLOW: dict[str, Settings] = {
    **{name: {"layers": 1} for name in ("bert", "llama", "mixtral", "transformer", "vit")},
    "char_lm": {"seq": 2, "depth": 2},
    "rnn_lm": {"seq": 3},
    "nmt": {"source_seq": 3, "target_seq": 2},
    "word_lm": {"seq": 3},
}
"""Smaller sizes of workloads that repeat their layers or time steps as others do."""

STEADY = {"gpt2", "lstm", "mlp", "unrolled_gan"}
"""Workloads of which the second step is compared, which finds the state of the optimizer; of others the first is."""

FINE: dict[str, Settings] = {"hf_mixtral": {"dtype": "float32"}}
"""Where the default type is too coarse for a norm's weight of 1 to feel one step."""


class Trained(NamedTuple):
    """Two real steps of a workload: both losses, the parameters that stayed as they were, the ops of each step."""

    losses: list[float]
    unchanged: set[str]
    ops: tuple[list[Dispatched], list[Dispatched]]


def sizes_of(name: str) -> Settings:
    return {**TINY[name], **SHALLOW.get(name, {})}


@cache
def trained(name: str, *settings: tuple[str, int | float | str | bool]) -> Trained:
    torch.manual_seed(0)
    step = find(name).load()(**sizes_of(name) | dict(settings) | {"optimizer": "adamw"})
    before = {key: parameter.detach().clone() for key, parameter in parameters(step).items()}
    assert before
    with Recorder() as beginning:
        first = step()
    with Recorder() as steady:
        second = step()
    unchanged = {key for key, parameter in parameters(step).items() if torch.equal(parameter, before[key])}
    return Trained([float(first.detach()), float(second.detach())], unchanged, (beginning.ops, steady.ops))


def fake_ops(name: str, settings: Settings, steps: int = 1) -> list[Dispatched]:
    """The ops of the last of so many steps when all, with the building, is on fake tensors."""
    workload = find(name).load()
    with StepFakeMode(), same_paths():
        step = workload(**sizes_of(name) | settings)
        for _ in range(steps - 1):
            step()
        with Recorder() as recorder:
            result = step()
    assert settings.get("train") is False or result.shape == ()
    ops: list[Dispatched] = recorder.ops
    return ops


def without_workspaces(ops: list[Dispatched]) -> list[Dispatched]:
    """Fake tensors do not know how much scratch memory the fused LSTM takes."""
    return [(op, () if op == "aten.mkldnn_rnn_layer_backward.default" else shapes) for op, shapes in ops]


@pytest.mark.parametrize("name", NAMES)
def test_two_real_steps_train_every_parameter(name: str) -> None:
    losses, unchanged, _ = trained(name, *FINE.get(name, {}).items())
    assert all(map(math.isfinite, losses))
    assert losses[0] != losses[1]
    assert unchanged == set()


@pytest.mark.parametrize("name", FAKE)
def test_a_fake_step_dispatches_the_ops_of_a_real_one(name: str) -> None:
    steps = 2 if name in STEADY else 1
    real, fake = trained(name).ops[steps - 1], fake_ops(name, {"optimizer": "adamw"}, steps)
    assert without_workspaces(fake) == without_workspaces(real)


@pytest.mark.parametrize("name", FORWARD)
def test_a_forward_step_has_no_gradients(name: str) -> None:
    step = find(name).load()(**sizes_of(name), train=False)
    before = {key: parameter.detach().clone() for key, parameter in parameters(step).items()}
    output = step()
    assert torch.isfinite(output).all()
    assert not output.requires_grad
    assert all(torch.equal(parameter, before[key]) for key, parameter in parameters(step).items())
    forward = fake_ops(name, {"train": False})
    assert 0 < len(forward) < len(trained(name).ops[0]) / 2
    assert not [op for op, _ in forward if "backward" in op]


@pytest.mark.parametrize(("name", "settings"), some_slow([*SETTINGS, *MORE_SETTINGS], MORE_SETTINGS))
def test_other_settings_train_and_dispatch_the_same_ops(name: str, settings: Settings) -> None:
    if not find(name).available:
        pytest.skip(f"needs {', '.join(find(name).missing)}")
    losses, _, (real, _) = trained(name, *settings.items())
    assert all(map(math.isfinite, losses))
    assert fake_ops(name, settings | {"optimizer": "adamw"}) == real
    assert real != trained(name).ops[0]


def test_the_auxiliary_classifier_of_inception_is_trained() -> None:
    losses, unchanged, _ = trained("inception_v3", ("aux", True), ("image", 299))
    assert all(map(math.isfinite, losses))
    assert unchanged == set()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_optimizer_is_the_one_asked_for(optimizer: str) -> None:
    ops = fake_ops("mlp", {"optimizer": optimizer})
    assert ("aten.sqrt.default" in dict(ops)) == (optimizer == "adam")
    with pytest.raises(ValueError, match="unknown optimizer"):
        find("mlp").load()(optimizer="none")
