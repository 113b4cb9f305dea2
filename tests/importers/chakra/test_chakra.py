"""Chakra traces: the published one byte by byte, any messages there and back, steps written and read, and bad ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist
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
from tensortide.reports.sections import Step, cost
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
    (written,) = write_chakra(trace, tmp_path / "x.et")
    assert written.read_bytes() == path.read_bytes()


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


def test_parameters_that_a_trace_does_not_tell_are_unknown_and_not_none(reference: Path) -> None:
    graph = tensortide.open(reference / "timing" / "fixtures" / "chakra_two_nodes.et").graph
    assert cost.of_step(Step(graph)).fact("parameters") is None
    parameters = cost.of_step(Step(tensortide.capture("mlp"))).fact("parameters")
    assert isinstance(parameters, int)
    assert parameters > 0


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
    assert step.durations.kind == "estimated"
    assert step.durations.source.startswith(durations.source)  # it stays a prediction, for that device
    assert step.durations.measurement is None
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


def test_every_collective_is_written_and_read_by_its_own_name() -> None:
    from tests.graphs import Builder

    builder = Builder()
    for name in ("gather_", "scatter_", "reduce_", "broadcast_", "alltoall_base_"):
        builder.op([builder.storage(256)], [], mutated=(0,), name=f"c10d.{name}.default")
    kinds = (CommType.GATHER, CommType.SCATTER, CommType.REDUCE, CommType.BROADCAST, CommType.ALL_TO_ALL)
    trace = chakra_of(builder.graph())
    assert tuple(node.attribute("comm_type") for node in trace.nodes) == kinds
    unsaid = tuple(msgspec.structs.replace(node, attributes=()) for node in trace.nodes)
    named = msgspec.structs.replace(unsaid[0], name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)")
    graph = imported(Chakra("", (named, *unsaid[1:])), "x.0.et").graph
    read = [op.name.split(".")[1] for op in graph]
    assert read == ["all_reduce", "scatter", "reduce", "broadcast", "all_to_all"]


def _collective_step() -> tensortide.Graph:
    from tests.graphs import Builder

    builder = Builder()
    tensor = builder.storage(64)
    builder.op([tensor], [builder.storage(64, birth=0)])
    builder.op([builder.storage(256)], [], mutated=(0,), name="c10d.allreduce_.default")
    return builder.graph()


def exchanging() -> Callable[[], None]:
    """A step of rank 0 of 6 that sends, receives and reduces, among all ranks and in a group of three."""
    some = dist.new_group([0, 3, 5])
    ours, theirs = torch.ones(8), torch.ones(4)

    def step() -> None:
        dist.send(ours, 2, tag=7)
        dist.recv(theirs, 4, tag=9)
        dist.send(ours, 5, group=some, tag=1)
        dist.irecv(theirs)
        dist.all_reduce(ours)
        dist.all_reduce(ours, group=some)
        dist.broadcast(theirs, 3, group=some)

    return step


def test_what_is_exchanged_names_its_ends_its_tag_and_its_group(tmp_path: Path) -> None:
    trace = chakra_of(tensortide.capture(exchanging, ranks=6))
    names = ("comm_src", "comm_dst", "comm_tag", "pg_name", "comm_size")
    found = [(n.type, *map(n.attribute, names)) for n in trace.nodes if n.attribute("comm_size") is not None]
    assert found == [
        (NodeType.SEND, 0, 2, 7, "0", 32),
        (NodeType.RECEIVE, 4, 0, 9, "0", 16),
        (NodeType.SEND, 0, 5, 1, "1", 32),
        (NodeType.RECEIVE, None, None, 0, "0", 16),  # from any rank
        (NodeType.COLLECTIVE, None, None, None, "0", 32),
        (NodeType.COLLECTIVE, None, None, None, "1", 32),
        (NodeType.COLLECTIVE, None, None, None, "1", 16),
    ]
    assert trace.groups == {0: (0, 1, 2, 3, 4, 5), 1: (0, 3, 5)}
    files = write_chakra(trace, tmp_path / "x.0.et")
    assert [path.name for path in files] == ["x.0.et", "x.groups.json"]
    again = read_chakra(files[0])
    assert again == trace
    contents = [path.read_bytes() for path in files]
    assert contents[1] == b'{"0": [0, 1, 2, 3, 4, 5], "1": [0, 3, 5]}'
    write_chakra(again, files[0])
    assert [path.read_bytes() for path in files] == contents
    step = tensortide.open(files[0]).graph
    assert step.meta.groups == {"0": (0, 1, 2, 3, 4, 5), "1": (0, 3, 5)}
    assert [op.arguments.get("comm_tag") for op in step if "comm_size" in op.arguments][:3] == [7, 9, 1]


def test_what_a_collective_writes_in_place_is_read_after_it() -> None:
    """The schema of ``c10d.allreduce_`` declares no writes: unless they are known, two of them are unordered views."""
    graph = tensortide.capture(exchanging, ranks=6)
    first, second = (op for op in graph if op.name.startswith("c10d.allreduce_"))
    assert not first.is_view
    assert graph.index.writes[first.index] == graph.index.writes[second.index] != ()
    assert first.index in graph.index.dependencies[second.index]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"2": [0, 1]}', r"node 2 \(ar\) is of process group '1', which .*x\.groups\.json does not have"),
        (b'{"1": [0, 0]}', r"x\.groups\.json: group 1 has a rank twice"),
        (b'{"1": []}', r"x\.groups\.json: group 1 has no ranks"),
        (b'{"1": [0, 1.5]}', r"x\.groups\.json is no file of process groups"),
        (b'{"1": [0, -1]}', r"x\.groups\.json is no file of process groups"),
        (b'{"a": [0]}', r"x\.groups\.json is no file of process groups"),
        (b'{"1": [0', r"x\.groups\.json is no file of process groups"),
        (b"\xff", r"x\.groups\.json is no file of process groups"),
    ],
)
def test_a_damaged_file_of_groups_is_one_clear_error(content: bytes, message: str, tmp_path: Path) -> None:
    reduce = Node(2, "ar", NodeType.COLLECTIVE, data=(1,), attributes=(Attribute("pg_name", "string", "1"),))
    write_chakra(Chakra("0.0.4", (compute(1), reduce)), tmp_path / "x.0.et")
    assert len(tensortide.open(tmp_path / "x.0.et").graph) == 2
    (tmp_path / "x.groups.json").write_bytes(content)
    with pytest.raises(TimesError, match=message):
        tensortide.open(tmp_path / "x.0.et")
    (tmp_path / "x.groups.json").write_bytes(b'{"1": [0, 1]}')
    assert tensortide.open(tmp_path / "x.0.et").graph.meta.groups == {"1": (0, 1)}


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


@pytest.mark.parametrize("name", ["output_bytes", "duration_nanos", "num_ops", "tensor_size", "comm_size"])
@pytest.mark.parametrize("value", [-1, -(5 * 10**9), 2**60])
def test_amounts_that_cannot_be_name_the_file_and_the_node(name: str, value: int) -> None:
    wrong = Node(2, "b", NodeType.COMPUTE, data=(1,), attributes=(Attribute(name, "int64", value),))
    message = rf"file\.et, node 2 \(b\): {name} is {value}: it is 0 to 2\*\*60"
    with pytest.raises(TimesError, match=message):
        imported(Chakra("0.0.4", (compute(1), wrong), (), {}), "file.et")


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
