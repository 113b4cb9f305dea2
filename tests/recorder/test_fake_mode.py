"""A capture on fake tensors is the capture on real ones, op for op; and every op can be executed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tensortide import capture
from tensortide.examples import examples
from tensortide.graph import Graph, Op, Tensor, validate
from tensortide.recorder.execute import arguments, function
from tests.examples.tiny import LARGE, OF_A_KIND, OTHER_SIZES, TINY, Settings
from tests.marks import some_slow
from tests.recorder.workloads import ALL, captured

REPEATING = {"resnet", "densenet", "inception_v4", *OTHER_SIZES}
"""Examples of the ops and blocks of others (ResNet-18, 50 and 18 for small images, U-Net), many times over."""
EXAMPLES = [example for example in examples() if example.available and example.name not in REPEATING]
ALIKE = {
    "nmt",
    "transformer",
    "vector_transformer",
    "encoder_lm",
    "unrolled_rnn",
    "sum_treelstm",
    "similarity_treelstm",
    "bert",
    "hf_gpt2",
    "llama",
    "word_lm",
    "char_lm",
    "vit",
    "resnet18",
    "resnet18_cifar",
    "alexnet",
    "lstm",
    "mixtral",
    "vgg",
}
"""Examples of which others have nearly all ops: the GRU, GPT-2 and the U-Net; or all but a few."""
SLOW = [example for example in EXAMPLES if example.name in LARGE | OF_A_KIND | ALIKE]
BLOCK: Settings = {"layers": 1, "optimizer": "sgd"}
SHORT: dict[str, Settings] = {
    "nmt": {"source_seq": 2, "target_seq": 4},
    **{name: {"seq": 2} for name in ("rnn_lm", "word_lm", "char_lm")},
    **dict.fromkeys(("bert", "gpt2", "llama", "mixtral", "transformer", "vit"), BLOCK),
}
"""Settings that leave one layer of a transformer, whose update takes few ops, and two turns of a loop."""


def difference(fake: Graph, real: Graph) -> str:
    """The first thing in which two graphs differ, or nothing."""
    for i, (a, b) in enumerate(zip(fake, real, strict=False)):
        if a.call != b.call or _tensors(a.inputs) != _tensors(b.inputs) or _tensors(a.outputs) != _tensors(b.outputs):
            return f"op {i}: {a!r} {a.call} != {b!r} {b.call}"
        if _place(a.op) != _place(b.op) or a.module != b.module:
            return f"op {i}: {a.op} != {b.op}"
    if len(fake) != len(real):
        return f"{len(fake)} ops != {len(real)}"
    for i, (s, t) in enumerate(zip(fake.storages, real.storages, strict=True)):
        if s != t:
            return f"storage {i}: {s} != {t}"
    names = [
        [(n.name, n.role, n.trainable, graph.tensors[n.tensor].storage) for n in graph.named] for graph in (fake, real)
    ]
    return "" if names[0] == names[1] else "names"


def _tensors(tensors: tuple[Tensor, ...]) -> list[object]:
    """Everything about tensors but the strides of dimensions of size 1, which address nothing."""
    strides = [[s for s, n in zip(t.strides, t.shape, strict=True) if n != 1] for t in tensors]
    return [(t.storage, t.dtype, t.shape, s, t.offset) for t, s in zip(tensors, strides, strict=True)]


def _place(op: Op) -> tuple[object, ...]:
    return op.phase, op.recompute, op.branch


def test_statistics_of_a_normalisation_in_half_precision() -> None:
    def workload() -> Any:
        norm, x = torch.nn.LayerNorm(16), torch.randn(4, 16, dtype=torch.bfloat16)
        return lambda: norm(x).sum().backward()

    with torch.autocast("cpu", torch.bfloat16):
        fake, real = (capture(workload, real=real) for real in (False, True))
    assert difference(fake, real) == ""


@pytest.mark.parametrize("name", some_slow(ALL, ["gru"]))
def test_fake_equals_real(name: str) -> None:
    workload, settings = ALL[name]
    fake, real = captured(name), capture(workload, hyperparameters=settings, real=True)
    validate(fake)
    assert difference(fake, real) == ""


@pytest.mark.parametrize("example", some_slow(EXAMPLES, SLOW), ids=lambda e: e.name)
def test_every_example_that_repeats_no_other_fake_equals_real(example: Any) -> None:
    workload, settings = example.load(), {**TINY[example.name], **SHORT.get(example.name, {})}
    fake = capture(workload, hyperparameters=settings)
    real = capture(workload, hyperparameters=settings, real=True)
    validate(fake)
    assert difference(fake, real) == ""


@pytest.mark.parametrize("name", some_slow(ALL, ["gru"]))
def test_every_op_executes_again(name: str) -> None:
    """Each recorded call, given tensors of the recorded shapes, returns tensors of the recorded shapes."""
    graph = captured(name)
    with FakeTensorMode():
        for op in graph:
            if "data_dependent" in op.call.tags:
                continue
            args, kwargs = arguments(op, _empty)
            result = function(op.call)(*args, **kwargs)
            leaves = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
            again = [(tuple(t.shape), t.stride(), str(t.dtype)[6:]) for t in leaves]
            if op.name == "aten.native_batch_norm.default":  # the fake kernel gives statistics another dtype
                again = again[:1]
            assert again == [(t.shape, t.strides, t.dtype) for t in op.outputs][: len(again)], op


def _empty(tensor: Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.strides, dtype=getattr(torch, tensor.dtype))


def test_equal_batch_normalizations_are_worked_out_once_though_their_weights_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked_out = 0
    dispatch = FakeTensorMode._dispatch_impl

    def counted(mode: FakeTensorMode, func: Any, *rest: Any) -> Any:
        nonlocal worked_out
        worked_out += func is torch.ops.aten.native_batch_norm.default
        return dispatch(mode, func, *rest)

    monkeypatch.setattr(FakeTensorMode, "_dispatch_impl", counted)

    def workload() -> Callable[[], None]:
        model = nn.Sequential(*(nn.BatchNorm1d(7) for _ in range(5)))
        return lambda: model(torch.randn(11, 7)).sum().backward()

    graph = capture(workload)
    assert sum(op.name == "aten.native_batch_norm.default" for op in graph) == 5
    assert worked_out <= 2  # the first has an input that takes no gradient
