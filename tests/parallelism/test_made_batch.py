"""Steps that make their batch themselves: it is found by what becomes of it, and each rank is given its part."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.examples.decoders import gpt2
from tensortide.graph import Graph, Role
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.batch import batch_of
from tensortide.parallelism.divided_step import RankStep
from tensortide.parallelism.made_batch import given_batch
from tests.parallelism.captures import captured
from tests.parallelism.divided import Divided
from tests.parallelism.test_numerics import TINY_GPT2

Step = Callable[[], Any]
BATCH, TOKENS, WORDS = 4, 6, 10


class Words(nn.Module):
    """A bigram model with attention, in whose loss targets are flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(WORDS, 8), nn.Embedding(TOKENS, 8)
        self.mix, self.head = nn.Linear(8, 24), nn.Linear(8, WORDS)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found = self.table(ids) + self.places(torch.arange(TOKENS))
        queries, keys, values = self.mix(found).chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return functional.cross_entropy(self.head(mixed).flatten(0, 1), targets.flatten())


def loss_of(model: nn.Module, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(ids, targets)
    return loss


def updating(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def drawn_words() -> Step:
    model = Words()

    def loss() -> torch.Tensor:
        ids = torch.randint(0, WORDS, (BATCH, TOKENS + 1))
        return loss_of(model, ids[:, :-1], ids[:, 1:])

    return updating(model, loss)


def words_drawn_in_place() -> Step:
    model = Words()

    def loss() -> torch.Tensor:
        ids = torch.empty(BATCH, TOKENS + 1, dtype=torch.long).random_(0, WORDS)
        return loss_of(model, ids[:, :-1], ids[:, 1:])

    return updating(model, loss)


def images_drawn_in_place() -> Step:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 7))

    def loss() -> torch.Tensor:
        noise = torch.zeros(BATCH, 3, 4, 4).uniform_(-1, 1)
        values: torch.Tensor = model(torch.empty(BATCH, 3, 4, 4).normal_() + noise)
        return values.square().mean()

    return updating(model, loss)


def mapped_words(folder: Path, *, ahead: bool = False) -> Step:
    """As nanoGPT: slices of a memory-mapped file are stacked; ``ahead``: for the next step, beside this one."""
    np.arange(200, dtype=np.uint16).__mod__(WORDS).tofile(folder / "words.bin")
    model = Words()

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        data = np.memmap(folder / "words.bin", dtype=np.uint16, mode="r")
        starts = range(3, 3 + 5 * BATCH, 5)
        ids, targets = (
            torch.stack([torch.from_numpy(data[i + by : i + by + TOKENS].astype(np.int64)) for i in starts])
            for by in (0, 1)
        )
        return ids, targets

    held = [batch()] if ahead else []

    def loss() -> torch.Tensor:
        if not ahead:
            return loss_of(model, *batch())
        found = loss_of(model, *held[0])
        held[0] = batch()
        return found

    return updating(model, loss)


def looked_up(rows: int = 40, *, permuted: bool = False) -> Step:
    """Rows of a data set in memory, at drawn indexes or at the first ones of a permutation."""
    images, labels = torch.randn(rows, 6), torch.arange(rows) % 7
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 7))

    def loss() -> torch.Tensor:
        chosen = torch.randperm(rows)[:BATCH] if permuted else torch.randint(0, rows, (BATCH,))
        return functional.cross_entropy(model(images[chosen]), labels[chosen])

    return updating(model, loss)


def drawn_images() -> Step:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 7))

    def loss() -> torch.Tensor:
        labels = torch.randint(0, 7, (BATCH,))
        return functional.cross_entropy(model(torch.randn(BATCH, 3, 8, 8)), labels)

    return updating(model, loss)


def hidden_states() -> Step:
    """The batch is drawn, and a state of zeros beside it has it too, as its second dimension."""
    model, head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 2)

    def loss() -> torch.Tensor:
        state = torch.zeros(1, BATCH, 5), torch.zeros(1, BATCH, 5)
        values: torch.Tensor = head(model(torch.randn(BATCH, TOKENS, 3), state)[0])
        return values.square().mean()

    return updating(nn.ModuleList([model, head]), loss)


def loaded_images() -> Step:
    """A loop over a DataLoader whose batch is cast in the step."""
    data = TensorDataset(torch.randn(16, 3, 8, 8).double(), torch.arange(16) % 7)
    batches = iter(DataLoader(data, batch_size=BATCH))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 7))

    def loss() -> torch.Tensor:
        images, labels = next(batches)
        return functional.cross_entropy(model(images.to(torch.float32)), labels)

    return updating(model, loss)


def given(step: Step) -> tuple[Graph, RankStep]:
    graph = capture(step, real=True)
    return graph, given_batch(analyzed(graph))


def batch_shape(graph: Graph) -> tuple[tuple[int, ...], int]:
    where = batch_of(analyzed(graph))
    return tuple(map(int, graph.tensors[where.tensor].shape)), where.dimension


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (drawn_words, (BATCH, TOKENS + 1)),
        (words_drawn_in_place, (BATCH, TOKENS + 1)),
        (images_drawn_in_place, (BATCH, 3, 4, 4)),
        (drawn_images, (BATCH, 3, 8, 8)),
        (hidden_states, (BATCH, TOKENS, 3)),
    ],
)
def test_a_batch_that_is_drawn_in_the_step_is_divided(build: Callable[[], Step], shape: tuple[int, ...]) -> None:
    graph, found = given(build())
    assert len(found.graph) < len(graph)
    assert re.match(r"The batch is dimension 0 of the 4 x .* that .* makes;", found.remarks[0])
    assert batch_shape(found.graph) == (shape, 0)
    ranks = per_rank(graph, Degrees(data=2))
    assert (ranks.batch, ranks.micro_batch) == (BATCH, BATCH // 2)
    assert found.remarks[0] in ranks.remarks
    Divided(found.graph, data=2).assert_equal()
    Divided(found.graph, data=2, pipeline=2).assert_equal()


@pytest.mark.parametrize("permuted", [False, True])
def test_rows_of_a_data_set_are_no_batch_but_those_that_are_looked_up(permuted: bool) -> None:
    graph, found = given(looked_up(permuted=permuted))
    assert batch_shape(found.graph) == ((BATCH,), 0)
    assert not [op for op in found.graph if "rand" in op.name], "each rank is given its indexes"
    ranks = per_rank(graph, Degrees(data=2))
    assert (ranks.batch, ranks.micro_batch) == (BATCH, BATCH // 2)
    products = [op for op in ranks.graphs[0] if op.name == "aten.addmm.default"]
    assert all(ranks.graphs[0].tensors[op.op.outputs[0]].shape[0] == BATCH // 2 for op in products)
    Divided(found.graph, data=2).assert_equal()


def test_a_batch_of_a_memory_mapped_file_is_found_where_it_is_stacked(tmp_path: Path) -> None:
    graph, found = given(mapped_words(tmp_path))
    assert batch_shape(found.graph) == ((BATCH, TOKENS), 0)
    inputs = [entry for entry in found.graph.named if entry.role is Role.INPUT]
    assert len(inputs) == 2, "ids and targets, not the slices that they are stacked of"
    assert per_rank(graph, Degrees(data=4)).micro_batch == 1
    Divided(found.graph, data=2).assert_equal()


def test_a_batch_for_the_next_step_is_no_part_of_this_one(tmp_path: Path) -> None:
    graph, found = given(mapped_words(tmp_path, ahead=True))
    assert batch_shape(found.graph) == ((BATCH, TOKENS), 0)
    assert "batch of the next one" in found.remarks[0]
    assert per_rank(graph, Degrees(data=2)).batch == BATCH
    Divided(found.graph, data=2).assert_equal()


def test_a_batch_of_a_loader_without_a_name_is_an_input() -> None:
    graph, found = given(loaded_images())
    assert not [entry for entry in graph.named if entry.role is Role.INPUT]
    assert "4 x 3 x 8 x 8 that aten._to_copy" in found.remarks[0]
    assert len(found.graph) == len(graph)
    assert per_rank(graph, Degrees(data=2)).batch == BATCH
    Divided(found.graph, data=2).assert_equal()


def test_a_step_with_inputs_stays_as_it_is() -> None:
    graph = captured(gpt2, TINY_GPT2)
    assert given_batch(analyzed(graph)) == RankStep(graph)


def test_a_step_without_any_batch_is_refused() -> None:
    model = nn.Linear(3, 2)
    graph = capture(updating(model, lambda: model.weight.square().sum()), real=True)
    with pytest.raises(DegreesError, match="has no inputs"):
        per_rank(graph, Degrees(data=2))
