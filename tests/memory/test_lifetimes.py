"""The classification of storages, case by case, and the two rules for lifetimes."""

from __future__ import annotations

import pytest
from hypothesis import given

from tensortide.graph import Graph, Phase, Role
from tensortide.memory.lifetimes import Residence, lifetimes, residences
from tests.graphs import Builder, graphs


def used(
    role: Role, birth: int | None, death: int | None, reader: Phase | None, found: str = "", name: str = "w.grad"
) -> Residence:
    """The residence of a storage that op 1 of three reads in phase ``reader``; ``found``: a gradient with this name
    exists before the step and op 0 reads it."""
    builder = Builder()
    storage = builder.storage(8, role, birth, death, name=name)
    before = [builder.storage(8, Role.GRADIENT, death=1, name=found)] if found else []
    builder.op(before, [storage] if birth == 0 else [])
    builder.op([storage] if reader else [], phase=reader or Phase.FORWARD)
    builder.op()
    return residences(builder.graph())[0]


@pytest.mark.parametrize(
    ("expected", "role", "birth", "death", "reader"),
    [
        (Residence.ALWAYS, Role.PARAMETER, None, None, Phase.FORWARD),
        (Residence.ALWAYS, Role.GRADIENT, None, None, Phase.OPTIMIZER),
        (Residence.ALWAYS, Role.GRADIENT, None, None, None),
        (Residence.NEVER, Role.GRADIENT, None, 0, None),
        (Residence.NEVER, Role.GRADIENT, None, 2, None),
        (Residence.LOCAL, Role.GRADIENT, None, 2, Phase.OPTIMIZER),
        (Residence.LOCAL, Role.BUFFER, None, 3, Phase.FORWARD),
        (Residence.LOCAL, Role.ACTIVATION, 0, 3, Phase.BACKWARD),
        (Residence.LOCAL, Role.INPUT, 0, 3, Phase.FORWARD),
        (Residence.KEPT, Role.OUTPUT, 0, None, None),
        (Residence.KEPT, Role.OPTIMIZER_STATE, 0, None, Phase.OPTIMIZER),
        (Residence.KEPT, Role.GRADIENT, 0, None, None),
        (Residence.KEPT, Role.GRADIENT, 0, None, Phase.BACKWARD),
        (Residence.LOCAL, Role.GRADIENT, 0, None, Phase.OPTIMIZER),
    ],
)
def test_residence(expected: Residence, role: Role, birth: int | None, death: int | None, reader: Phase | None) -> None:
    assert used(role, birth, death, reader) is expected


def test_a_gradient_that_the_next_step_starts_from_is_kept() -> None:
    """The step uses the gradient that it finds under the same name: so will the next one."""
    assert used(Role.GRADIENT, 0, None, Phase.OPTIMIZER, found="w.grad") is Residence.KEPT
    assert used(Role.GRADIENT, 0, None, Phase.OPTIMIZER, found="v.grad") is Residence.LOCAL


@given(graphs())
def test_last_use_is_within_eager_and_covers_every_use(graph: Graph) -> None:
    eager, short = lifetimes(graph), lifetimes(graph, "last_use")
    assert (short.births == eager.births).all()
    assert (short.deaths <= eager.deaths).all()
    assert (short.births < short.deaths).all()
    for index, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            storage = graph.tensors[tensor].storage
            assert short.births[storage] <= index < short.deaths[storage]


@given(graphs())
def test_persistent_storages_are_those_before_and_after_the_step(graph: Graph) -> None:
    for storage, residence in zip(graph.storages, residences(graph), strict=True):
        assert (residence is Residence.ALWAYS) == (storage.birth is None and storage.death is None)
