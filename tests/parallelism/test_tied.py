"""Parameters that several stages of a pipeline use: gradients are added among the stages once a step."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.graph import Graph, Phase, Role, validate
from tensortide.parallelism import Degrees, Ranks, per_rank
from tensortide.parallelism.accumulation import gradient_bytes
from tensortide.parallelism.stages import staged
from tensortide.parallelism.tied import tied_gradients
from tests.marks import some_slow
from tests.parallelism.divided import Divided

VOCAB, WIDTH, BATCH = 24, 16, 8
TABLE = VOCAB * WIDTH * 8
"""Bytes of the table of ``Tied``, and of each of its states and gradients."""


class Tied(nn.Module):
    """A table that the first and the last module use, and one layer that is used by ``uses`` of those between."""

    def __init__(self, uses: int = 1, norm: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        self.blocks = nn.ModuleList(nn.Sequential(layers[max(0, i - uses + 1)], nn.Tanh()) for i in range(3))
        self.norm = nn.LayerNorm(WIDTH) if norm else nn.Identity()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def trained(make: Callable[[], nn.Module], kind: Callable[..., torch.optim.Optimizer]) -> Callable[[], object]:
    def workload() -> Callable[[], None]:
        model = make().double()
        optimizer = kind(model.parameters(), lr=0.05)
        ids = torch.randint(0, VOCAB, (BATCH,))

        def step() -> None:
            nn.functional.cross_entropy(model(ids), ids).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return workload


@functools.cache
def step(uses: int = 1, *, norm: bool = True, kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW) -> Graph:
    return capture(trained(lambda: Tied(uses, norm), kind), real=True)


def held(graph: Graph, name: str, role: Role) -> list[int]:
    """Bytes of the storages of a role whose names begin with ``name``, scalars left out."""
    return [int(s.nbytes) for s in graph.storages if s.role is role and s.name.startswith(name) and s.nbytes > 8]


def tied(ranks: Ranks) -> dict[tuple[int, str], tuple[int, int, str]]:
    """By stage and group of tied gradients: the number of their all-reduces, bytes and phase."""
    return {
        (each.stage, each.group): (each.number, each.nbytes, each.phase)
        for each in ranks.collectives
        if each.group.startswith("tied")
    }


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_the_gradient_of_a_tied_table_is_reduced_once_whatever_the_micro_batches(micro_batches: int) -> None:
    ranks = per_rank(step(), Degrees(pipeline=2, micro_batches=micro_batches))
    assert tied(ranks) == {(stage, "tied_0_1"): (1, TABLE, "optimizer") for stage in (0, 1)}
    activations = BATCH // micro_batches * WIDTH * 8
    assert [(t.nbytes, t.source, t.target, t.phase) for t in ranks.transfers] == [
        (activations, 0, 1, Phase.FORWARD),
        (activations, 1, 0, Phase.BACKWARD),
    ]
    for graph in ranks.graphs:
        validate(graph)
        assert graph.meta.groups["tied_0_1"] == (0, 1)


def test_each_stage_of_a_tied_table_has_its_gradient_and_state() -> None:
    whole = step()
    first, middle, last = per_rank(whole, Degrees(pipeline=3)).graphs
    for graph, tables in ((first, 1), (middle, 0), (last, 1)):
        assert held(graph, "tokens.weight", Role.PARAMETER) == [TABLE] * tables
        assert held(graph, "tokens.weight", Role.OPTIMIZER_STATE) == [TABLE] * 2 * tables
        assert held(graph, "tokens.weight.grad", Role.GRADIENT) == [TABLE] * tables
    assert sum(map(gradient_bytes, (first, middle, last))) == gradient_bytes(whole) + TABLE


def test_the_norm_of_all_gradients_counts_a_tied_one_in_its_first_stage() -> None:
    def normed(graph: Graph) -> list[str]:
        return [graph.storages[t.storage].name for op in graph if "_foreach_norm" in op.name for t in op.inputs]

    first, last = map(normed, per_rank(step(), Degrees(pipeline=2)).graphs)
    assert "tokens.weight.grad" in first
    assert last
    assert "tokens.weight.grad" not in last


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("uses", [1, 2, 3])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_ranks_with_tied_parameters_compute_the_undivided_step(
    uses: int, stages: int, kind: Callable[..., torch.optim.Optimizer]
) -> None:
    """Tables and layers that any of the stages share, several times in one stage too; in float64."""
    Divided(step(uses, kind=kind), pipeline=stages).assert_equal(1e-9)


@pytest.mark.parametrize("zero", some_slow([0, 1, 2, 3], [2, 3]))
def test_replicas_of_stages_with_a_tied_table_compute_the_undivided_step(zero: int) -> None:
    Divided(step(), data=2, pipeline=2, zero=zero).assert_equal(1e-9)
    Divided(step(2), data=2, pipeline=3, zero=zero).assert_equal(1e-9)


@pytest.mark.parametrize("how", ["autocast", "fused", "one by one"])
def test_a_tied_gradient_is_reduced_once_however_the_step_is_written(how: str) -> None:
    def workload() -> Callable[[], None]:
        model = Tied() if how == "autocast" else Tied().double()
        optimizer = torch.optim.AdamW(model.parameters(), fused=how == "fused", foreach=how == "autocast")
        ids = torch.randint(0, VOCAB, (BATCH,))

        def step() -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
                loss = nn.functional.cross_entropy(model(ids), ids)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, foreach=how == "fused")
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(workload, real=True)
    table = TABLE // 2 if how == "autocast" else TABLE
    assert set(tied(per_rank(graph, Degrees(pipeline=2, micro_batches=2))).values()) == {(1, table, "optimizer")}
    Divided(graph, pipeline=2).assert_equal(1e-2 if how == "autocast" else 1e-9)


def test_replicas_that_shard_reduce_their_part_of_a_tied_gradient() -> None:
    for zero, part in ((0, TABLE), (1, TABLE // 2), (2, TABLE // 2)):
        ranks = per_rank(step(), Degrees(data=2, pipeline=2, zero=zero))
        assert tied(ranks) == {(stage, "tied_0_1"): (1, part, "optimizer") for stage in (0, 1)}
        assert ranks.graphs[1].meta.groups["tied_0_1"] == (0, 2)


def test_a_stage_of_a_tied_head_alone_takes_part_in_the_norm() -> None:
    """Its gradient is counted elsewhere; the norm of nothing is 0."""
    graph = step(norm=False)
    ranks = per_rank(graph, Degrees(pipeline=5))
    assert ranks.firsts[-1] == "head"
    assert not any("_foreach_norm" in op.name for op in ranks.graphs[-1])
    norms = [each.stage for each in ranks.collectives if (each.group, each.phase) == ("pipeline", "other")]
    assert norms == [0, 1, 2, 3, 4]
    Divided(graph, pipeline=5).assert_equal(1e-9)


def test_a_gradient_that_is_used_before_the_backward_pass_ends_is_not_added_up_by_stage() -> None:
    """A hook that looks at it sees the sum of all stages after each backward pass."""

    def workload() -> Callable[[], None]:
        model = Tied().double()

        def halve(weight: torch.Tensor) -> None:
            assert weight.grad is not None
            weight.grad.mul_(0.5)

        model.tokens.weight.register_post_accumulate_grad_hook(halve)
        optimizer, ids = torch.optim.SGD(model.parameters(), lr=0.05), torch.randint(0, VOCAB, (BATCH,))

        def step() -> None:
            nn.functional.cross_entropy(model(ids), ids).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(workload, real=True)
    assert tied_gradients(graph, staged(graph, 2).of) == ()
    ranks = per_rank(graph, Degrees(pipeline=2))
    assert [t.phase for t in ranks.transfers if t.nbytes == TABLE] == [Phase.BACKWARD, Phase.OPTIMIZER]
    Divided(graph, pipeline=2).assert_equal(1e-9)


def test_a_contribution_of_repeated_elements_is_added_in_every_micro_batch() -> None:
    """The gradient of a sum is one element, seen as many: there is no memory to add up in."""

    class Penalized(nn.Module):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.weight.sum()

    def workload() -> Callable[[], None]:
        first = nn.Linear(WIDTH, WIDTH)
        model = nn.Sequential(first, nn.Tanh(), nn.Linear(WIDTH, WIDTH), Penalized(first.weight)).double()
        optimizer, x = torch.optim.SGD(model.parameters(), lr=0.05), torch.randn(BATCH, WIDTH, dtype=torch.float64)

        def step() -> None:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(workload, real=True)
    assert tied_gradients(graph, staged(graph, 2).of) == ()
    Divided(graph, pipeline=2).assert_equal(1e-9)


def test_a_parameter_may_be_used_in_thousands_of_steps_of_time() -> None:
    def workload() -> Callable[[], None]:
        weight = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([weight], lr=0.05)

        def step() -> None:
            state = torch.ones(4)
            for _ in range(1500):
                state = state * weight
            state.sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(workload, real=True)
    middle = len(graph) // 2  # of the backward pass, which begins after its 1,500 forward ops
    (found,) = tied_gradients(graph, [op >= middle for op in range(len(graph))])
    assert found.parts == (0, 1)
    assert len(found.sums) == len(found.contributions) - 1
