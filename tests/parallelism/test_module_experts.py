"""Experts that are modules of their own: ranks with some of them compute together what the whole step computes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tensortide import capture
from tensortide.errors import DegreesError
from tensortide.graph import Graph, Role
from tensortide.parallelism import Degrees, per_rank, product_flops
from tensortide.parallelism.experts.module_experts import expert_modules
from tests.marks import some_slow
from tests.parallelism.divided import Divided

BATCH, SEQ, HIDDEN, WIDTH, EXPERTS = 4, 12, 8, 12, 4
PAIRS = [[0, 1], [1, 2], [2, 3], [1, 3], [1, 0], [2, 1], [3, 2], [1, 2], [3, 0], [0, 3], [0, 1], [2, 0]]
"""Experts of the tokens of a sequence: 6, 7, 6 and 5 tokens."""
OF_EACH = (6, 7, 6, 5)


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(HIDDEN, WIDTH, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)
        self.down = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Mixture(nn.Module):
    """A layer of experts in a list, as it was written before grouped products; the choice of experts is an input."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        if form == "lists":
            self.up = nn.ModuleList(nn.Linear(HIDDEN, WIDTH) for _ in range(EXPERTS))
            self.down = nn.ModuleList(nn.Linear(WIDTH, HIDDEN) for _ in range(EXPERTS))
        else:
            self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.form = form

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        shape, x, chosen = x.shape, x.flatten(0, 1), chosen.flatten(0, 1)
        weights = self.router(x).softmax(-1).gather(1, chosen)
        mixed: torch.Tensor = getattr(self, f"_{self.form}")(x, chosen, weights / weights.sum(-1, keepdim=True))
        return mixed.view(shape)

    def _where(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            place, token = torch.where(mask[number])
            rows = x[None, token].reshape(-1, HIDDEN)
            out.index_add_(0, token, expert(rows) * weights[token, place, None])
        return out

    def _masks(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            for place in range(chosen.shape[1]):
                mask = chosen[:, place] == number
                out[mask] += expert(x[mask]) * weights[mask, place][:, None]
        return out

    def _dense(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + expert(x) * (weights * (chosen == number)).sum(-1, keepdim=True)
        return out

    def _lists(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number in range(EXPERTS):
            token, place = torch.where(chosen == number)
            rows = self.down[number](F.gelu(self.up[number](x[token])))
            out = out.index_add(0, token, rows * weights[token, place][:, None])
        return out


class Model(nn.Module):
    def __init__(self, form: str, layers: int, recomputed: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(6, HIDDEN)
        self.layers = nn.ModuleList(Mixture(form) for _ in range(layers))
        self.head = nn.Linear(HIDDEN, 8)
        self.recomputed = recomputed

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        for layer in self.layers:
            x = x + (checkpoint(layer, x, chosen, use_reentrant=False) if self.recomputed else layer(x, chosen))
        return self.head(x)  # type: ignore[no-any-return]


def choice(top: int, pairs: list[list[int]] = PAIRS) -> torch.Tensor:
    return torch.tensor(pairs)[:, :top].expand(BATCH, SEQ, top).clone()


one_by_one = functools.partial(torch.optim.Adam, foreach=False)
"""An optimizer that updates each parameter with ops of its own."""


@functools.cache
def step_of(
    form: str = "where",
    *,
    layers: int = 1,
    top: int = 2,
    recomputed: bool = False,
    clipped: bool = False,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
) -> Graph:
    """A training step, captured on real tensors: how many tokens an expert has depends on values."""

    def workload() -> Callable[[], None]:
        model = Model(form, layers, recomputed)
        updates = optimizer(model.parameters(), lr=0.1)
        x, chosen, target = torch.randn(BATCH, SEQ, 6), choice(top), torch.randint(0, 8, (BATCH, SEQ))

        def step() -> None:
            updates.zero_grad()
            F.cross_entropy(model(x, chosen).flatten(0, 1), target.flatten()).backward()
            if clipped:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            updates.step()

        return step

    return capture(workload, real=True)


def divided(graph: Graph, top: int = 2, **degrees: int) -> Divided:
    """The step divided and executed, with the captured choice of experts."""
    inputs = [e for e in graph.named if e.role is Role.INPUT]
    (name,) = [e.name for e in inputs if graph.tensors[e.tensor].shape == (BATCH, SEQ, top)]
    return Divided(graph, {name: choice(top)}, **degrees)


@pytest.mark.parametrize("form", some_slow(["where", "masks", "dense", "lists"], ["masks", "dense"]))
def test_each_form_is_exact(form: str) -> None:
    divided(step_of(form), data=2, expert=2).assert_equal()
    divided(step_of(form), data=2).assert_equal()


@pytest.mark.parametrize(
    ("options", "degrees"),
    some_slow(
        [
            ({"top": 1}, {"data": 4, "expert": 4}),
            ({}, {"data": 2, "expert": 2, "tensor": 2}),
            ({"layers": 2}, {"data": 2, "expert": 2, "pipeline": 2}),
            ({"optimizer": one_by_one}, {"data": 4, "expert": 2, "zero": 2}),
            ({"clipped": True, "optimizer": torch.optim.Adam}, {"data": 4, "expert": 2, "zero": 3}),
            ({"layers": 2, "clipped": True, "optimizer": one_by_one}, {"data": 2, "expert": 2, "tensor": 2}),
            ({"recomputed": True}, {"data": 2, "expert": 2}),
        ],
        [
            ({}, {"data": 2, "expert": 2, "tensor": 2}),
            ({"clipped": True, "optimizer": torch.optim.Adam}, {"data": 4, "expert": 2, "zero": 3}),
            ({"optimizer": one_by_one}, {"data": 4, "expert": 2, "zero": 2}),
            ({"layers": 2, "clipped": True, "optimizer": one_by_one}, {"data": 2, "expert": 2, "tensor": 2}),
        ],
    ),
)
def test_with_other_degrees_and_updates(options: dict[str, Any], degrees: dict[str, Any]) -> None:
    divided(step_of(**options), options.get("top", 2), **degrees).assert_equal()


def sent(graph: Graph, **degrees: Any) -> dict[str, list[int]]:
    """Bytes that a rank sends in every all-to-all, by phase."""
    found: dict[str, list[int]] = {}
    for op in per_rank(graph, Degrees(**degrees)).graph:
        if "alltoall" in op.name:
            found.setdefault(op.phase.value, []).append(int(op.inputs[1].region_bytes))
    return found


@pytest.mark.parametrize("layers", [1, 2])
def test_two_all_to_alls_in_each_pass_carry_the_rows_of_a_rank(layers: int) -> None:
    nbytes = BATCH // 2 * SEQ * 2 * HIDDEN * 4  # two experts for each token
    given = sum(BATCH // 2 * n for n in OF_EACH[:2]) * 2 * HIDDEN * 4  # of both ranks, for the experts of the first
    found = {"forward": [nbytes, given] * layers, "backward": [nbytes, given] * layers}
    assert sent(step_of(layers=layers), data=2, expert=2) == found


def test_recomputed_rows_travel_again() -> None:
    found = sent(step_of(recomputed=True), data=2, expert=2)
    assert (len(found["forward"]), len(found["backward"])) == (2, 4)


def test_all_tokens_are_sent_to_a_rank_once_and_come_back_from_each_expert() -> None:
    tokens = BATCH // 2 * SEQ * HIDDEN * 4
    found = sent(step_of("dense"), data=2, expert=2)
    assert found["forward"] == [2 * tokens, EXPERTS // 2 * 2 * tokens]
    of_products = 2  # the gradients of what both products of an expert read, as autograd adds them one by one
    assert found["backward"] == [EXPERTS * tokens, of_products * EXPERTS // 2 * 2 * tokens]


def test_products_and_state_are_those_of_the_step_together() -> None:
    graph = step_of(optimizer=one_by_one)
    ranks = [per_rank(graph, Degrees(data=2, expert=2), expert_rank=rank).graph for rank in range(2)]
    assert sum(map(product_flops, ranks)) == product_flops(graph)
    own = EXPERTS * 3 * HIDDEN * WIDTH * 4
    for role, copies in ((Role.PARAMETER, 1), (Role.OPTIMIZER_STATE, 2)):
        first, second, whole = (
            sum(int(s.nbytes) for s in each.storages if s.role is role and s.birth is None) for each in (*ranks, graph)
        )
        assert whole - first == pytest.approx(copies * own / 2, abs=4 * EXPERTS * 3)  # beside counters of steps
        assert first == second


def test_copies_that_read_each_other_are_no_experts() -> None:
    graph = step_of(layers=2)
    assert [layer.name for layer in expert_modules(graph)] == ["layers.0.experts", "layers.1.experts"]
    sizes = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 64, "seq": 8}
    gpt = capture("gpt2", hyperparameters=sizes, real=True)
    assert not expert_modules(gpt)
    with pytest.raises(DegreesError, match=r"no experts to divide: .* alike that do not read each other's results"):
        per_rank(gpt, Degrees(data=2, expert=2))


def test_what_is_assumed_is_said() -> None:
    remarks = per_rank(step_of(), Degrees(data=2, expert=2)).remarks
    assert any(r.startswith("What values select (aten.nonzero.default in layers.0") for r in remarks)
    assert any("layers.0.experts.0 to 3 are taken for experts, 2 to a rank" in r for r in remarks)
    assert any("as many rows as were captured, 10 to 14 (26 of 48 to this rank, balanced 24)" in r for r in remarks)


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(DegreesError, match=r"experts / expert = 4/3 is no whole number \(in layers\.0\.experts\)"):
        per_rank(step_of(), Degrees(data=3, expert=3), is_local=True)


def test_an_expert_without_rows_is_refused() -> None:
    def workload() -> Callable[[], None]:
        model = Model("where", 1, recomputed=False)
        x, chosen = torch.randn(BATCH, SEQ, 6), choice(2) % (EXPERTS - 1)
        return lambda: model(x, chosen).sum().backward()

    with pytest.raises(DegreesError, match=r"of layers\.0\.experts\.3, reads \(.*\), fewer than two rows"):
        per_rank(capture(workload, real=True), Degrees(data=2, expert=2))


class Mixing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Mixing(), r"rows of an expert are not computed one by one: aten\.mean\.dim in experts\.0.* sums over them"),
        (nn.Softmax(0), r"rows of an expert are not computed one by one: aten\._softmax.* in experts\.[01]"),
        (nn.BatchNorm1d(HIDDEN), r"native_batch_norm.*experts\.0.*, reads \(8\), which is no rows of tokens"),
    ],
)
def test_rows_that_an_expert_mixes_are_refused(layer: nn.Module, message: str) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts = (
                nn.Sequential(nn.Linear(HIDDEN, HIDDEN), copy.deepcopy(layer), nn.Linear(HIDDEN, HIDDEN))
                for _ in range(2)
            )
            self.experts = nn.ModuleList(parts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * self.experts[0](x) + 3 * self.experts[1](x)  # type: ignore[no-any-return]

    step = capture(Pair(), torch.randn(8, HIDDEN), loss="sum", real=True)
    with pytest.raises(DegreesError, match=message):
        per_rank(step, Degrees(data=2, expert=2), is_local=True)
