"""Loaders are looked at late and lose no batch; forward passes call models of any signature."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from tensortide.errors import MetricError
from tensortide.measures.backend import Arguments, backend_of
from tensortide.measures.data import Data, count, splits_of
from tensortide.measures.forward_pass import ForwardPass


def ragged(samples: int = 10, batch_size: int = 4, **options: Any) -> DataLoader[Any]:
    """A loader of (3,) inputs and labels whose last batch is smaller."""
    x = torch.arange(samples * 3.0).reshape(samples, 3)
    return DataLoader(TensorDataset(x, torch.arange(samples)), batch_size, **options)


class Stream(IterableDataset[Any]):
    """A dataset that cannot start over."""

    def __init__(self, samples: int) -> None:
        self.left = iter(range(samples))

    def __iter__(self) -> Iterator[Any]:
        return ((torch.full((3,), float(i)), i) for i in self.left)


def labels(data: Data) -> list[int]:
    return [int(y) for _, ys in data for y in ys]


def batches() -> Iterator[Any]:
    yield from ragged()


@pytest.mark.parametrize(
    ("loader", "restarts"),
    [(batches(), False), (ragged(), True), ([*ragged()], True), (DataLoader(Stream(10), 4), False)],
)
def test_a_loader_is_inspected_late_and_loses_no_batch(loader: Any, restarts: bool) -> None:
    data = Data(loader)
    for _ in range(2):
        assert data.first()[1].tolist() == [0, 1, 2, 3]
    assert data.batch_size == 4
    assert labels(data) == list(range(10))
    assert labels(data) == (list(range(10)) if restarts else [])


class Counted:
    """An iterator that knows how much is left."""

    def __init__(self) -> None:
        self.left = [*ragged()]

    def __len__(self) -> int:
        return len(self.left)

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> Any:
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


def test_an_iterator_with_a_length_does_not_start_over() -> None:
    data = Data(Counted())
    assert data.first()[1].tolist() == [0, 1, 2, 3]
    assert labels(data) == list(range(10))


def test_a_stream_of_random_batches_has_none_twice() -> None:
    def drawn() -> Iterator[Tensor]:
        for _ in range(3):
            yield torch.rand(2)

    torch.manual_seed(0)
    plain = [batch.tolist() for batch in drawn()]
    torch.manual_seed(0)
    data = Data(drawn())
    data.first()
    assert [batch.tolist() for batch in data] == plain


def test_attachment_reads_nothing() -> None:
    class Untouchable(Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("nobody asked for data")

    data = splits_of({"train": DataLoader(Untouchable(), 3)}, ForwardPass((0,)))["train"]
    assert (len(data), data.batch_size, data.samples) == (3, 3, 8)


def test_a_shuffled_loader_moves_no_generator() -> None:
    def loaders() -> Iterator[tuple[DataLoader[Any], torch.Generator]]:
        own = torch.Generator().manual_seed(1)
        x = TensorDataset(torch.zeros(10, 3), torch.arange(10))
        yield DataLoader(x, 4, shuffle=True), own
        yield DataLoader(x, 4, shuffle=True, generator=own), own
        yield DataLoader(x, batch_sampler=BatchSampler(RandomSampler(x, generator=own), 4, False)), own

    for loader, own in loaders():
        before = torch.get_rng_state(), own.get_state(), random.getstate()
        taken = Data(loader).first()[1]
        assert torch.equal(before[0], torch.get_rng_state())
        assert torch.equal(before[1], own.get_state())
        assert before[2] == random.getstate()
        assert torch.equal(next(iter(loader))[1], taken)


@pytest.mark.parametrize(
    ("loader", "length", "batch_size", "samples"),
    [
        (ragged(), 3, 4, 10),
        (ragged(drop_last=True), 2, 4, 8),
        ([*ragged()], 3, 4, 10),
        (DataLoader(Stream(10), 4), None, 4, None),
        (batches(), None, 4, None),
        (DataLoader(TensorDataset(torch.zeros(5, 2)), batch_sampler=[[0, 1, 2], [3, 4]]), 2, 3, 5),
        ((torch.zeros(6, 2), torch.zeros(6)), 1, 6, 6),
        ({"x": [torch.zeros(7, 2)]}, 1, 7, 7),
        (torch.zeros(3, 2), 1, 3, 3),
        (np.zeros((2, 2)), 1, 2, 2),
        (["text"], 1, None, None),
    ],
)
def test_sizes_count_samples_or_are_unknown(
    loader: Any, length: int | None, batch_size: int | None, samples: int | None
) -> None:
    data = Data(loader)
    if length is None:
        with pytest.raises(TypeError, match="len"):
            len(data)
    else:
        assert len(data) == length
    assert (data.batch_size, data.samples) == (batch_size, samples)


def test_the_wrapper_has_the_attributes_of_the_loader() -> None:
    data = Data(ragged())
    assert data.dataset is data.loader.dataset
    assert Data.of(data) is data
    with pytest.raises(AttributeError):
        data.nothing  # noqa: B018
    with pytest.raises(MetricError, match="which a int does not"):
        Data(3)
    with pytest.raises(MetricError, match="no batches"):
        Data([]).first()


class Two(nn.Module):
    """Takes its inputs by name alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 3)
        self.seen: list[tuple[Any, bool, bool]] = []

    def forward(self, *, ids: Tensor, scale: Tensor) -> Tensor:
        self.seen.append((ids, self.training, torch.is_grad_enabled()))
        return self.table(ids).sum(1) * scale[:, None]  # type: ignore[no-any-return]


BATCH = {"tokens": torch.tensor([[2, 5], [3, 4]]), "weight": torch.ones(2), "labels": torch.zeros(2)}


def test_a_model_of_named_arguments_takes_batches_that_are_dicts() -> None:
    model, forward = Two(), ForwardPass({"tokens": "ids", "weight": "scale"})
    data = Data([BATCH], forward)
    output = data.forward.perform(model, BATCH)
    assert torch.equal(output, model.table.weight[BATCH["tokens"]].sum(1))
    assert forward.shapes() == ((2,), ())
    drawn = forward.random_inputs(50)
    assert drawn.positional == ()
    assert sorted(set(drawn.named["ids"].flatten().tolist())) == [2, 3, 4, 5]
    output, ns = forward.timed_random(model, 7)
    assert tuple(output.shape) == (7, 3)
    assert ns > 0
    assert [seen[1:] for seen in model.seen] == [(False, False)] * 2
    assert model.training


def test_a_tuple_of_named_entries_works_too() -> None:
    forward = ForwardPass(("scale", "_", "ids"))
    output, ns = forward.timed(Two(), (torch.zeros(2), "label", BATCH["tokens"]))
    assert not output.any()
    assert ns > 0


def test_seed_distribution_and_ranges_are_those_of_the_forward_pass() -> None:
    loader = [(torch.zeros(2, 30), torch.tensor([[0, 1]] * 2), 0)]
    one, two = (Data(loader, ForwardPass((0, 1, "_"), seed=seed, ranges={1: (7, 8)})).forward for seed in (1, 2))
    normal = Data(loader, ForwardPass((0, 1, "_"), distribution="normal")).forward
    x, ids = one.random_arguments(40).positional
    assert set(ids.flatten().tolist()) == {7, 8}
    assert float(x.min()) >= 0 > float(normal.random_arguments(4).positional[0].min())
    assert not torch.equal(x, two.random_arguments(40).positional[0])
    assert torch.equal(x, one.random_arguments(40).positional[0])
    with pytest.raises(MetricError, match="not 'cauchy'"):
        ForwardPass((0,), distribution="cauchy")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((torch.ones(2, 3),), Arguments((torch.ones(2, 3),))),
        ({"x": torch.ones(2, 3)}, Arguments((), {"x": torch.ones(2, 3)})),
        (torch.ones(2, 3), Arguments((torch.ones(2, 3),))),
    ],
)
def test_arguments_take_the_place_of_a_loader(given: Any, expected: Arguments) -> None:
    class Sum(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    data = Data(given)
    found = data.forward.arguments(data.first())
    assert [*map(torch.Tensor.tolist, found.positional)] == [*map(torch.Tensor.tolist, expected.positional)]
    assert found.named.keys() == expected.named.keys()
    assert tuple(data.forward.perform_random(Sum(3, 2), 5).shape) == (5, 2)
    assert data.forward.left_out(data.first()) == {}


class Own(ForwardPass):
    """Inputs that are no tensors."""

    def inputs(self, batch: Any) -> Any:
        return [f"image {i}" for i in batch]

    def random_inputs(self, batch_size: int) -> Any:
        return ["noise"] * batch_size


class OwnCall(Own):
    def call(self, model: Any, inputs: Any) -> Any:
        return model(torch.tensor([[float(len(text))] for text in inputs]))

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((1,),)


class Scaled(ForwardPass):
    """Calls the model with a tensor of its own."""

    scale = torch.full((1,), 2.0)

    def call(self, model: Any, inputs: Arguments) -> Any:
        return model(inputs.positional[0] * self.scale)


def test_a_capture_gets_the_call_without_the_data() -> None:
    assert ForwardPass((0,)).own_call is None
    model, loader = nn.Linear(3, 2), [*ragged()]
    data = Data(loader, Scaled((0, "_")))
    call = data.forward.own_call
    assert call is not None
    assert call.__self__.data is None  # type: ignore[attr-defined]
    graph = backend_of(model).forward_graph(model, data.forward.random_arguments(5), call=call)
    assert graph[0].name == "aten.mul.Tensor"
    assert {storage.nbytes for storage in graph.storages if storage.birth is None} == {5 * 3 * 4, 4, 24, 8}
    assert data.forward.data is data


def test_construction_needs_what_a_pattern_does_not_say() -> None:
    class OwnInputs(ForwardPass):
        def inputs(self, batch: Any) -> Any:
            return batch[1]

    with pytest.raises(TypeError, match="needs an input pattern"):
        ForwardPass()
    for kind in (ForwardPass, OwnInputs):
        with pytest.raises(TypeError, match="its own random_inputs"):
            kind((0,), common=False)
    assert OwnInputs().arguments((1, 2)) == Arguments((2,))
    model = nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"its own call\(model, inputs\)"):
        Own(common=False).perform(model, [1, 2])
    assert model.training
    assert tuple(OwnCall(common=False).perform(model, [1, 2]).shape) == (2, 1)
    assert tuple(OwnCall(common=False).perform_random(model, 3).shape) == (3, 1)
    assert OwnCall(common=False).shapes() == ((1,),)
    with pytest.raises(MetricError, match="attached to no data"):
        ForwardPass((0,)).random_inputs(1)


def test_one_forward_pass_is_that_of_the_training_split_and_a_dict_has_one_each() -> None:
    forward, other = ForwardPass((0,)), ForwardPass(("_", 0))
    found = splits_of({"train": [1], "test": ragged()}, forward)
    assert found["train"].forward is forward
    assert found["test"].forward.pattern is not None
    assert found["test"].forward.pattern.pattern == (0, "_")
    found = splits_of({"train": [1], "test": [2], "val": found["test"]}, {"train": other, "test": other})
    assert [found[split].forward.pattern.pattern for split in found] == [("_", 0), ("_", 0), (0, "_")]  # type: ignore[union-attr]
    assert found["train"].forward is not found["test"].forward  # each is like its own data
    for wrong, text in ((ForwardPass((0,)), "no split 'train'"), ({"test": (0,)}, "is a tuple, not a ForwardPass")):
        with pytest.raises(MetricError, match=text):
            splits_of({"test": [2]}, wrong)  # type: ignore[arg-type]


def test_samples_of_a_batch() -> None:
    assert count({"a": "text", "b": [torch.tensor(1), torch.zeros(4, 2)]}) == 4
    assert count(("text", 3)) is None


def test_metrics_load_no_framework() -> None:
    code = (
        "import importlib, pkgutil, sys, tensortide.measures as room\n"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(room.__path__, room.__name__ + '.')]\n"
        "from tensortide.measures.data import Data\n"
        "data = Data([[1, 2]])\n"
        "assert data.forward.arguments(data.first()).positional == (1,)\n"
        "assert not {'torch', 'keras', 'tensorflow', 'jax'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
