"""The autograd engine's sums of gradients: in place where an ordinary run does them in place."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from tensortide.graph import TENSOR, Call, Graph, Op, Phase, Role, Storage, Tensor, validate
from tensortide.memory import accumulate_in_place
from tensortide.timelines import timeline
from tests.memory.test_workspace import real_peak

N = 1000


def sums(*, view: bool = False, held: bool = False, phase: Phase = Phase.BACKWARD) -> Graph:
    """Three gradients of 1000 floats, added up: first ``a + b``, then the result and ``c``."""
    tensors = [Tensor(i, "float32", (N,), (1,)) for i in range(5)]
    make = Call("test.grad.default", (), 0, (), TENSOR, ("view",) if view else ())
    add = Call("aten.add.Tensor", (("self", TENSOR), ("other", TENSOR)), 2)
    ops = [Op(0, (), (i,), Phase.BACKWARD) for i in range(3)]
    ops += [Op(1, (0, 1), (3,), phase), Op(1, (3, 2), (4,), phase), Op(2, (4,), (), Phase.OPTIMIZER)]
    use = Call("test.use.default", (("x", TENSOR),), 1, (), ())
    lives = [(0, 6 if held else 4), (1, 4), (2, 5), (3, 5), (4, None)]
    storages = [Storage(4 * N, "cpu", Role.TEMPORARY, birth, death) for birth, death in lives[:4]]
    storages.append(Storage(4 * N, "cpu", Role.GRADIENT, 4, None, "w.grad"))
    graph = Graph(tuple(ops), (make, add, use), tuple(tensors), tuple(storages))
    validate(graph)
    return graph


def test_sums_into_the_first_gradient() -> None:
    before = sums()
    after = accumulate_in_place(before)
    validate(after)
    assert [op.name for op in after][3:5] == ["aten.add_.Tensor"] * 2
    assert after[3].written_storages == {0}
    assert len(after.storages) == 3
    assert after.storages[0] == Storage(4 * N, "cpu", Role.GRADIENT, 0, None, "w.grad")
    assert timeline(before).resident.tolist() == [n * N for n in (4, 8, 12, 16, 12, 4)]
    assert timeline(after).resident.tolist() == [n * N for n in (4, 8, 12, 12, 8, 4)]
    assert accumulate_in_place(after) is after


@pytest.mark.parametrize(
    ("graph", "in_place"),
    [
        (sums(view=True), [False, True]),
        (sums(held=True), [False, True]),
        (sums(phase=Phase.FORWARD), [False, False]),
    ],
    ids=["view", "held by another", "forward"],
)
def test_what_is_summed_out_of_place(graph: Graph, in_place: list[bool]) -> None:
    after = accumulate_in_place(graph)
    validate(after)
    assert [op.name == "aten.add_.Tensor" for op in after][3:5] == in_place


def test_only_candidates_are_touched() -> None:
    after = accumulate_in_place(sums(), candidates=[4])
    assert [op.name for op in after][3:5] == ["aten.add.Tensor", "aten.add_.Tensor"]
    assert accumulate_in_place(sums(), candidates=[]) == sums()


def shared_embedding() -> Callable[[], None]:
    """One table looked up three times: its gradients are fresh storages, which the engine sums in place."""
    import torch

    table, ids = torch.nn.Embedding(2000, 64), torch.randint(0, 2000, (8,))

    def step() -> None:
        y = table(ids) * table(ids + 0) * table(ids * 1)
        y.backward(y.detach())
        table.zero_grad()

    return step


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_real_step() -> None:
    from tensortide.recorder import capture

    line = timeline(accumulate_in_place(capture(shared_embedding)))
    step = shared_embedding()
    step()
    peak, _ = real_peak(step)
    assert line.peak_bytes - line.start_bytes == pytest.approx(peak, rel=0.001)
    assert peak < 2.2 * 2000 * 64 * 4, "two gradients of the table at a time, not three"
