"""Sparse tensors on fake tensors: as many entries as on real ones, down to storages; or one line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.errors import DataDependent
from tensortide.recorder.sparse import DISTINCT
from tests.recorder.test_fake_mode import difference

COO = torch.sparse_coo_tensor(
    torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.rand(3), (3, 3), check_invariants=True
).coalesce()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the layout is a beta feature
    CSR = torch.eye(3).to_sparse_csr()

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch's, about invariants and a beta layout


def embedding(optimizer: str, bag: bool) -> Callable[[], None]:
    net: Any = nn.EmbeddingBag(100, 16, sparse=True, mode="sum") if bag else nn.Embedding(100, 16, sparse=True)
    rate = {} if optimizer == "SparseAdam" else {"lr": 0.1}
    update: Any = getattr(torch.optim, optimizer)(net.parameters(), **rate)
    ids = torch.arange(32).reshape(4, 8)

    def step() -> None:
        net(ids).sum().backward()
        update.step()
        update.zero_grad()

    return step


@pytest.mark.parametrize(("optimizer", "bag"), [("SparseAdam", False), ("SGD", True), ("Adagrad", False)])
def test_gradients_of_embeddings(optimizer: str, bag: bool) -> None:
    settings: dict[str, str | bool] = {"optimizer": optimizer, "bag": bag}
    fake, real = (capture(embedding, hyperparameters=settings, real=real) for real in (False, True))
    assert difference(fake, real) == ""  # the indices of the step are distinct
    assert fake.meta.assumptions == (() if optimizer == "SGD" else (DISTINCT,))
    gpu = capture(embedding, hyperparameters=settings, device="cuda")
    assert [op.name for op in gpu] == [op.name for op in fake]


def adjacency() -> Any:
    """A matrix made in the step, as of a graph of 20 nodes."""
    edges, layer, x = torch.randint(0, 20, (2, 50)), nn.Linear(8, 8), torch.rand(20, 8)

    def step() -> None:
        matrix = torch.sparse_coo_tensor(edges, torch.ones(50), (20, 20), check_invariants=False)
        torch.sparse.mm(matrix * 2, layer(x)).sum().backward()

    return step


def given() -> Any:
    """Matrices from outside of the step."""
    weight = torch.rand(3, 4, requires_grad=True)

    def step() -> None:
        (torch.sparse.mm(COO, weight) + CSR @ weight).sum().backward()

    return step


def rows() -> Any:
    """A matrix of compressed rows, made in the step of its parts."""
    layer, x = nn.Linear(8, 8), torch.rand(20, 8)
    ends, columns = torch.arange(21), torch.arange(20)

    def step() -> None:
        matrix = torch.sparse_csr_tensor(ends, columns, torch.ones(20), (20, 20), check_invariants=False)
        (matrix @ layer(x)).sum().backward()

    return step


def test_products_with_sparse_matrices_on_a_pretended_gpu() -> None:
    gpu, cpu = capture(rows, device="cuda"), capture(rows)
    assert gpu.index.main_device == "cuda:0"
    assert sum("mm" in op.name for op in gpu) == sum("mm" in op.name for op in cpu)


@pytest.mark.parametrize("workload", [adjacency, given, rows])
def test_products_with_sparse_matrices(workload: Any) -> None:
    fake, real = (capture(workload, real=real) for real in (False, True))
    assert difference(fake, real) == ""
    names = {s.name: s.nbytes for s in fake.storages}
    if workload is given:
        assert (names["COO"], names["CSR"]) == (2 * 3 * 8 + 3 * 4, 4 * 8 + 3 * 8 + 3 * 4)


def test_a_dense_matrix_of_known_values_has_known_entries() -> None:
    def workload() -> Any:
        return lambda: torch.eye(20).to_sparse_csr()

    for device in (None, "cuda"):
        graph = capture(workload, device=device, real=None if device else False)
        (made,) = [op for op in graph if op.name == "aten._to_sparse_csr.default"]
        assert graph.storages[made.outputs[0].storage].nbytes == 21 * 8 + 20 * 8 + 20 * 4


def test_numbers_of_entries_that_depend_on_values_are_not_guessed() -> None:
    def workload() -> Any:
        dense = torch.rand(3, 3)
        return lambda: torch.sparse.mm(dense.to_sparse(), dense)

    with pytest.raises(DataDependent, match="_to_sparse"):
        capture(workload, real=False)
    assert capture(workload).meta.captured_on == "real"
