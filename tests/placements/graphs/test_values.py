"""Values: the versions of storages, what a copy takes, and what travels free."""

from __future__ import annotations

from hypothesis import given

from tensortide.graph import Graph, Phase, Role, Tensor
from tensortide.placements.graphs.values import GIVEN, values_of
from tests.graphs import Builder, graphs


@given(graphs())
def test_every_read_is_of_the_version_that_was_written_last(graph: Graph) -> None:
    values = values_of(graph)
    latest = {storage: GIVEN for storage, held in enumerate(graph.storages) if held.birth is None}
    for op in range(len(graph)):
        found = {(values.values[v].storage, values.values[v].writer) for v in values.reads[op]}
        assert found == {(storage, latest[storage]) for storage in graph.index.reads[op]}
        assert [values.values[v].storage for v in values.writes[op]] == list(graph.index.writes[op])
        latest.update(dict.fromkeys(graph.index.writes[op], op))
    for number, value in enumerate(values.values):
        assert value.readers == tuple(op for op in range(len(graph)) if number in values.reads[op])
        assert 0 <= value.nbytes <= graph.storages[value.storage].nbytes


def test_a_mutation_makes_a_new_value() -> None:
    builder = Builder()
    weight = builder.storage(8, Role.PARAMETER)
    out = builder.storage(8, birth=0)
    builder.op([weight], [out])
    builder.op([weight], [weight], mutated=(0,), phase=Phase.OPTIMIZER)
    first, _, second = sorted(values_of(builder.graph()).values, key=lambda value: (value.storage, value.writer))[:3]
    values = [value for value in values_of(builder.graph()).values if value.storage == 0]
    assert [value.writer for value in values] == [GIVEN, 1]
    assert values[0].readers == (0, 1)
    assert first.storage == 0
    assert second.storage == 1


def test_a_copy_has_what_readers_read_of_a_storage() -> None:
    builder = Builder()
    x = builder.storage(100, Role.INPUT)
    builder.tensors.append(Tensor(0, "float32", (2, 3), (10, 1), 4))  # bytes 16 to 16 + 4 * 13 = 68
    out = builder.storage(8, birth=0)
    builder.op([len(builder.tensors) - 2], [out])
    assert values_of(builder.graph()).values[0].nbytes == 52
    builder.op([x], [])
    assert values_of(builder.graph()).values[0].nbytes == 100


def test_constants_of_one_element_and_what_has_no_bytes_travel_free() -> None:
    builder = Builder()
    one = builder.storage(4, birth=0)
    nothing = builder.storage(0, birth=1)
    norm = builder.storage(4, birth=2)
    builder.op([], [one], name="aten.ones.default")
    builder.op([], [nothing], name="aten.zeros.default")
    builder.op([one, nothing], [norm], name="aten.mul.Tensor")
    builder.op([norm], [])
    assert [value.free for value in values_of(builder.graph()).values] == [True, True, False]
