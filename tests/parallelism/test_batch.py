"""The batch is found among the dimensions of the inputs, and replicas compute on their parts of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.examples.decoders import mixtral
from tensortide.graph import Graph
from tensortide.parallelism import Degrees, per_rank, product_flops
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.batch import batch_of
from tests.parallelism.captures import captured
from tests.parallelism.divided import Divided
from tests.parallelism.test_numerics import TINY_MIXTRAL


def recurrent(kind: str, *, batch_first: bool, batch: int = 4, seq: int = 3) -> Any:
    """A step of a classifier on a recurrent layer of PyTorch, of which the last output is read."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(nn, kind)(6, 8, 2, batch_first=batch_first)
            self.head = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            states, _ = self.layer(x)
            return self.head(states[:, -1] if batch_first else states[-1])  # type: ignore[no-any-return]

    def workload() -> Any:
        model = Classifier()
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.randn(*((batch, seq) if batch_first else (seq, batch)), 6)
        target = torch.randint(0, 8, (batch,))

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), target).backward()
            optimizer.step()

        return step

    return workload


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_are_exact_on_parts_of_a_batch_in_either_dimension(kind: str, batch_first: bool) -> None:
    graph = capture(recurrent(kind, batch_first=batch_first), real=True)
    assert batch_of(analyzed(graph)).dimension == (0 if batch_first else 1)
    ranks = per_rank(graph, Degrees(data=2))
    assert ranks.batch == 4
    assert ranks.micro_batch == 2
    Divided(graph, data=2).assert_equal()


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_that_turn_their_results_in_place_are_exact_in_stages(kind: str) -> None:
    graph = capture(recurrent(kind, batch_first=True), real=True)
    Divided(graph, pipeline=2).assert_equal()
    Divided(graph, data=2, pipeline=2).assert_equal()


@pytest.mark.parametrize(
    ("name", "small", "dimension"),
    [
        ("gpt2", {"layers": 1, "hidden": 32, "heads": 4, "vocab": 64, "seq": 8}, 0),
        pytest.param(
            "hf_mixtral",
            {"layers": 1, "hidden": 32, "heads": 4, "kv_heads": 2, "vocab": 64, "seq": 8, "intermediate": 32},
            0,
            marks=pytest.mark.slow,
        ),
        pytest.param("char_lm", {"seq": 6, "hidden": 16, "depth": 2}, 1, marks=pytest.mark.slow),
        ("word_lm", {"seq": 6, "hidden": 16, "vocab": 64}, 1),
        ("lstm", {"seq": 6, "hidden": 16, "inputs": 8}, 0),
        ("resnet18_cifar", {"batch": 4, "width": 8}, 0),
    ],
)
def test_the_batch_is_the_dimension_that_no_op_mixes(name: str, small: dict[str, Any], dimension: int) -> None:
    graph = captured(name, small)
    assert batch_of(analyzed(graph)).dimension == dimension
    assert per_rank(graph, Degrees(data=2)).micro_batch


@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers_of_cudnn_have_their_part_of_the_batch(batch_first: bool) -> None:
    graph = capture(recurrent("LSTM", batch_first=batch_first), machine="A100-SXM-80GB")
    ranks = per_rank(graph, Degrees(data=2, zero=1))
    (layer,) = [op for op in ranks.graph if op.name == "aten._cudnn_rnn.default"]
    data, hidden = layer.inputs[0].shape, layer.outputs[1].shape
    assert (data, hidden) == (((2, 3, 6) if batch_first else (3, 2, 6)), (2, 2, 8))
    assert product_flops(ranks.graph) * 2 == product_flops(graph)
    (_, why, *_) = [each.why for each in per_rank(graph, Degrees(tensor=2)).replicated]
    assert why.startswith("aten._cudnn_rnn")  # all gates and steps of a layer are one kernel


def test_replicas_of_a_mixture_route_their_own_tokens() -> None:
    graph = captured(mixtral, TINY_MIXTRAL)
    Divided(graph, data=2).assert_equal()
    tight = captured(mixtral, {**TINY_MIXTRAL, "capacity": 0.625})
    slots = {op.outputs[0].shape[1] for op in per_rank(tight, Degrees(data=2)).graph if op.name == "aten.topk.default"}
    assert slots == {2, 5}  # experts of a token; 0.625 * 16 tokens * 2 / 4 experts


def test_an_op_that_mixes_the_batch_is_named_with_its_line_and_dimension() -> None:
    def workload() -> Any:
        model = nn.Linear(4, 4)
        x = torch.randn(6, 4)

        def step() -> None:
            model(x)[1:].square().mean().backward()

        return step

    with pytest.raises(DegreesError, match=r"aten\.slice\.Tensor in .*test_batch\.py:\d+.*a view"):
        per_rank(capture(workload, real=True), Degrees(data=2))


def test_an_op_that_pairs_samples_is_named() -> None:
    encoder, x = nn.Linear(6, 4), torch.randn(8, 6)

    def step() -> None:
        found = encoder(x)
        nn.functional.cross_entropy(found @ found.t(), torch.arange(8)).backward()

    with pytest.raises(DegreesError, match=r"aten\.mm\.default in .*test_batch\.py:\d+\) pairs every sample"):
        per_rank(capture(step, real=True), Degrees(data=2))


def test_a_gradient_that_is_its_own_transpose_does_not_make_features_a_batch() -> None:
    def graph(batch: int) -> Graph:
        model, x = nn.Linear(8, 8), torch.randn(batch, 8)
        return capture(lambda: model(x).sum().backward(), real=True)

    with pytest.raises(DegreesError, match="its transpose is the same tensor"):
        per_rank(graph(8), Degrees(data=2))
    shapes = {tuple(tensor.shape) for tensor in per_rank(graph(16), Degrees(data=2)).graph.tensors}
    assert (8, 8) in shapes  # the batch of a rank, and the weight as it was
    assert (4, 8) not in shapes
