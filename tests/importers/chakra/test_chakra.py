"""Chakra traces: the published one byte by byte, any messages there and back, steps written and read, and bad ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensortide
from tensortide.cost import count
from tensortide.errors import TimesError
from tensortide.importers.chakra.files import read_chakra, write_chakra
from tensortide.importers.chakra.graph import chakra_of, imported
from tensortide.importers.chakra.messages import (
    Attribute,
    Chakra,
    CommType,
    Node,
    NodeType,
    Values,
    decode_node,
    encode_node,
)
from tensortide.timing import device, estimate

INTEGERS = {"int32": 31, "int64": 63, "sint32": 31, "sint64": 63, "sfixed32": 31, "sfixed64": 63}
NATURALS = {"uint32": 32, "uint64": 64, "fixed32": 32, "fixed64": 64}
FLOATS = st.floats(width=32, allow_nan=False)
BY_KIND: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(-(2**bits), 2**bits - 1) for kind, bits in INTEGERS.items()},
    **{kind: st.integers(0, 2**bits - 1) for kind, bits in NATURALS.items()},
    "double": FLOATS,
    "float": FLOATS,
    "bool": st.booleans(),
    "string": st.text(),
    "bytes": st.binary(),
}
attributes = st.sampled_from(sorted(BY_KIND)).flatmap(
    lambda kind: st.builds(
        Attribute, st.text(), st.just(kind), BY_KIND[kind] | st.lists(BY_KIND[kind]).map(tuple), st.text()
    )
)
ids = st.integers(0, 2**64 - 1)
texts = st.none() | st.builds(Values, st.text(), st.text(), st.text())
nodes = st.builds(
    Node,
    ids,
    st.text(),
    st.sampled_from(NodeType),
    st.lists(ids).map(tuple),
    st.lists(ids).map(tuple),
    ids,
    ids,
    texts,
    texts,
    st.lists(attributes).map(tuple),
)


def test_the_published_trace_has_two_nodes_and_comes_back_byte_by_byte(reference: Path, tmp_path: Path) -> None:
    path = reference / "timing" / "fixtures" / "chakra_two_nodes.et"
    trace = read_chakra(path)
    first, second = trace.nodes
    assert (first.id, first.name, first.type, first.duration_us) == (1, "mm", NodeType.COMPUTE, 123)
    assert (first.attribute("num_ops"), first.attribute("tensor_size")) == (10**9, 4096)
    assert (second.id, second.name, second.type, second.data) == (2, "ar", NodeType.COLLECTIVE, (1,))
    assert (second.attribute("comm_type"), second.attribute("comm_size")) == (CommType.ALL_REDUCE, 2**20)
    assert write_chakra(trace, tmp_path / "x.et").read_bytes() == path.read_bytes()


@given(nodes)
def test_any_node_comes_back(node: Node) -> None:
    assert decode_node(encode_node(node)) == node


def test_the_encoding_is_that_of_protocol_buffers() -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2

    message = descriptor_pb2.FieldDescriptorProto(name="n", number=-5, extendee="é")  # 1 string, 2 string, 3 int32
    written = encode_node(Node(0, attributes=(Attribute("n", "int32", -5),)))
    assert message.SerializeToString().endswith(written[-10:])  # a negative number has ten bytes
    assert struct.pack("<d", 1.5) in encode_node(Node(1, attributes=(Attribute("x", "double", 1.5),)))


def test_a_step_is_written_with_its_dependencies_and_read_with_its_costs_and_times(tmp_path: Path) -> None:
    graph = tensortide.capture("mlp")
    durations = estimate(graph, device("A100-SXM-80GB"))
    trace = chakra_of(graph, durations)
    write_chakra(trace, tmp_path / "mlp.0.et")
    step = tensortide.open(tmp_path / "mlp.0.et")
    kept = [op for op in graph if not op.is_view]
    assert len(step.graph) == len(kept)
    assert count(step.graph).total.flops == count(graph).total.flops
    assert step.durations is not None
    assert step.durations.ns == tuple(durations.ns[op.index] for op in kept)
    assert all(node.duration_us >= 1 for node in trace.nodes)
    place = {op.index: i + 1 for i, op in enumerate(kept)}
    reach: list[set[int]] = [set()]
    for node in trace.nodes:
        reach.append(set(node.data).union(*(reach[other] for other in node.data)))
    made: dict[int, int] = {}
    for op in graph:  # whatever reads a storage comes after whatever made or wrote it
        for tensor in op.op.inputs:
            storage = graph.index.owner[tensor]
            if storage in made and op.index in place and made[storage] != place[op.index]:
                assert made[storage] in reach[place[op.index]]
        for storage in (*graph.index.writes[op.index], *graph.index.allocated[op.index]):
            if op.index in place:
                made[storage] = place[op.index]


def test_collectives_are_written_as_such_and_never_start_unbidden() -> None:
    trace = chakra_of(_collective_step())
    found = [node for node in trace.nodes if node.type is NodeType.COLLECTIVE]
    assert found
    for node in found:
        assert node.attribute("comm_type") == CommType.ALL_REDUCE
        assert isinstance(size := node.attribute("comm_size"), int)
        assert size > 0
        assert node.data or node.control or node.id == 1


def _collective_step() -> tensortide.Graph:
    from tests.graphs import Builder

    builder = Builder()
    tensor = builder.storage(64)
    builder.op([tensor], [builder.storage(64, birth=0)])
    builder.op([builder.storage(256)], [], mutated=(0,), name="c10d.allreduce_.default")
    return builder.graph()


def compute(number: int, *data: int) -> Node:
    return Node(number, f"n{number}", NodeType.COMPUTE, data=data)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ((compute(1, 2), compute(2, 1)), r"2 nodes wait for each other, in a cycle or behind one: 1 \(n1\), 2 \(n2\)"),
        ((compute(1), compute(2, 7)), r"node 2 \(n2\) waits for node 7, which is not there"),
        ((compute(1), compute(1)), r"two nodes have the id 1"),
        ((compute(1), Node(2, "ar", NodeType.COLLECTIVE)), r"1 collectives wait for nothing.*: 2 \(ar\)"),
    ],
)
def test_nodes_that_contradict_each_other_are_refused(found: tuple[Node, ...], message: str) -> None:
    with pytest.raises(TimesError, match=message):
        imported(Chakra("0.0.4", found), "x.et")


def test_orphans_are_named() -> None:
    step = imported(Chakra("0.0.4", (compute(1), compute(2, 1), compute(3))), "x.et")
    assert any(
        "1 nodes wait for nothing, and nothing waits for them: 3 (n3)" in text for text in step.graph.meta.assumptions
    )


def test_nodes_run_after_those_that_they_wait_for_whatever_the_order_in_the_file() -> None:
    step = imported(Chakra("0.0.4", (compute(3, 1), compute(1), compute(2, 3))), "x.et")
    assert [op.op.label for op in step.graph] == ["n1", "n3", "n2"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"\x07\x0a\x05", "ends within a message"),
        (b"\x02\x0a\x00\x03\x1a\x05a", "cut off"),
        (b"\x02\x0a\x00\x02\x18\x63", "unknown type 99"),
    ],
)
def test_a_damaged_file_is_one_clear_error(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.et").write_bytes(data)
    with pytest.raises(TimesError, match=message):
        read_chakra(tmp_path / "x.et")
