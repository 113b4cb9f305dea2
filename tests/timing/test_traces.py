"""Traces and lists of times joined to a graph: what is there, what is not, and files that are wrong."""

from __future__ import annotations

import gzip
import json
import math
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TimesError
from tensortide.graph import Graph, Phase, Role
from tensortide.timing import json_stream
from tensortide.timing.durations import Measurement
from tensortide.timing.kineto import read_trace
from tensortide.timing.listed import from_list
from tensortide.timing.nesting import callers, forward_calls, self_ns
from tensortide.timing.traced import from_trace
from tests.graphs import Builder

NAMES = ("aten.mm.default", "aten.relu.default", "aten.t.default", "aten.mm.default")


def chain(device: str = "cpu") -> Graph:
    """mm, relu, t, mm on tensors of 4, 5, 6, 7, 8 bytes."""
    builder = Builder()
    tensor = builder.storage(4, Role.INPUT, device=device)
    for index, name in enumerate(NAMES):
        result = builder.storage(5 + index, birth=index, device=device)
        builder.op([tensor], [result], name=name)
        tensor = result
    return builder.graph()


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(start: float, slower: float = 1.0) -> list[dict[str, Any]]:
    """One step on the host: within linear a t and an mm, relu, then a t and an mm on a thread of their own."""
    return [
        event("ProfilerStep#3", start, 90, "user_annotation"),
        event("aten::linear", start + 1, 30),
        event("aten::mm", start + 3, 20 * slower),
        event("aten::copy_", start + 4, 2),
        event("aten::relu", start + 44, 5),
        event("aten::relu_inner", start + 45, 1),
        event("aten::t", start + 50, 1, tid=2),
        event("aten::mm", start + 60, 12, tid=2),
    ]


def written(path: Path, events: list[dict[str, Any]], **more: Any) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *events], **more})
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return path


def told(durations: Any) -> Measurement:
    assert isinstance(durations.measurement, Measurement)
    return durations.measurement


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_ops_take_the_median_of_their_calls_over_the_steps(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, [*step(0), *step(100, 2.0), *step(200, 1.5)])
    durations = from_trace(chain(), read_trace(path))
    assert durations.ns == (30_000, 5000, 1000, 12_000)
    found = told(durations)
    assert found.samples == (3, 3, 3, 3)
    assert found.min_ns[0] == 20_000
    assert found.step is not None
    assert found.step.median_ns == 90_000
    assert "4 of 4 ops found in 3 steps of the trace, by name and order only" in durations.source
    durations.check(chain())


def test_what_the_trace_has_not_is_unknown_and_not_zero(tmp_path: Path) -> None:
    events = [e for e in step(0) if e["name"] != "aten::relu"]
    durations = from_trace(chain(), read_trace(written(tmp_path / "t.json", events)))
    assert (durations.unknown, list(told(durations).stand_ins)) == (1, [1])
    assert durations.ns[1] > 0
    assert told(durations).samples[1] == 0


def test_unmarked_steps_are_found_where_they_repeat(tmp_path: Path) -> None:
    events = [e for start in (0, 100) for e in step(start) if e["cat"] == "cpu_op" and e["name"] != "aten::relu"]
    durations = from_trace(chain(), read_trace(written(tmp_path / "t.json", events)))
    assert told(durations).samples == (2, 0, 2, 2)


def test_a_device_takes_the_time_of_the_kernels_that_an_op_launched(tmp_path: Path) -> None:
    launches = [
        event("cudaLaunchKernel", 5, 1, "cuda_runtime", correlation=1),
        event("cudaLaunchKernel", 8, 1, "cuda_runtime", correlation=2),
        event("cuLaunchKernel", 61, 1, "cuda_driver", tid=2, correlation=3),
    ]
    kernels = [
        event("gemm", 200, 30, "kernel", tid=7, correlation=1),
        event("Memset", 231, 4, "gpu_memset", tid=7, correlation=2),
        event("gemm", 250, 44.5, "kernel", tid=7, correlation=3),
        event("lost", 300, 1, "kernel", tid=7, correlation=99),
    ]
    path = written(tmp_path / "t.json", [*step(0), *launches, *kernels], deviceProperties=[{"name": "Some GPU"}])
    durations = from_trace(chain("cuda:0"), read_trace(path))
    assert durations.ns == (35_000, 0, 0, 44_500)
    found = told(durations)
    assert found.clock == "kernel"
    assert found.machine is not None
    assert found.machine.name == "Some GPU"
    assert any("1 kernels in the trace have no launch" in note for note in found.notes)
    assert from_trace(chain("cpu"), read_trace(path)).ns == (35_000, 5000, 1000, 44_500)


def test_a_published_trace_is_read(reference: Path) -> None:
    trace = read_trace(reference / "timing" / "fixtures" / "kineto_mlp_cpu.json.gz")
    assert len(trace.ops) > 80
    addmm = next(op for op in trace.ops if op.name == "aten::addmm")
    assert addmm.shapes == ((128,), (8, 64), (64, 128))
    assert addmm.end_ns - addmm.start_ns == 19_407_166


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"t.json is no trace of a profiler"),
        (b"[]", r"t.json is no trace of a profiler .*expected '{' at character 0, not '\['"),
        (b'{"traceEvents": [{"ph": "X", "ts": "a"}]}', r"t.json: event 0 is no event of a profiler: .*\$.ts"),
        (b'{"traceEvents": [{"ph": "X"', r"t.json is no trace of a profiler .*at character 27, where the file ends"),
        (b'{"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": 1}]}', r"event 0 \(aten::mm\) has no time"),
        (b'{"traceEvents": [{"ph": "X", "name": "n", "ts": 1, "dur": -1}]}', r"event 0 \(n\) has no time"),
        (b'{"traceEvents": []}', r"none of its 0 events is an op of the host"),
        (b"\x1f\x8bnonsense", r"t.json is damaged \(gzip\)"),
        (b"\xff\xfe", r"t.json is no trace of a profiler"),
    ],
)
def test_a_malformed_trace_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(TimesError, match=message):
        read_trace(tmp_path / "t.json")


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TimesError, match="cannot read"):
        read_trace(tmp_path / "none.json")


# -- lists ------------------------------------------------------------------------------------------


def test_a_list_names_ops_by_index_and_by_name(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("op,ns\naten.mm,1000\naten.mm,3000\n1,50\naten.t.default,7.6\n")
    durations = from_list(chain(), path)
    assert durations.ns == (2000, 50, 8, 2000)
    assert told(durations).samples == (2, 1, 1, 2)
    lines = tmp_path / "l.jsonl"
    lines.write_text('{"op": 1, "ns": 50}\n\n{"op": "aten.mm", "ns": 2000}\n{"op": "aten.t.default", "ns": 8}\n')
    assert from_list(chain(), lines).ns == durations.ns


def test_what_is_not_listed_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("0,1000\n")
    durations = from_list(chain(), path)
    assert durations.unknown == 3
    assert list(told(durations).stand_ins) == [1, 2, 3]
    assert min(durations.ns) > 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("l.csv", "op,ns\naten.conv,3\n", r"l.csv, line 2: the graph has no op 'aten.conv'"),
        ("l.csv", "4,3\n", r"l.csv, line 1: there is no op 4: the graph has 4"),
        ("l.csv", "1,2,3\n", r"l.csv, line 1: it takes two columns"),
        ("l.csv", "1,soon\n", r"line 1: 'soon' is no duration"),
        ("l.csv", "1,-5\n", r"line 1: '-5' is no duration"),
        ("l.csv", "1,nan\n", r"line 1: 'nan' is no duration"),
        ("l.csv", "1,\u0661\u0662\n", r"line 1: '\u0661\u0662' is no duration"),
        ("l.csv", "1,1_000\n", r"line 1: '1_000' is no duration"),
        ("l.csv", "\u0661,12\n", r"line 1: the graph has no op '\u0661'"),
        ("l.csv", "op,ns\n", r"l.csv lists no op"),
        ("l.jsonl", '{"op": 1, "ns": 2}\n{"op": 1}\n', r"l.jsonl, line 2: it takes"),
        ("l.jsonl", "{\n", r"l.jsonl, line 1: it takes"),
        ("l.jsonl", '{"op": -1, "ns": 2}\n', r"l.jsonl, line 1: there is no op -1"),
    ],
)
def test_a_wrong_line_is_said_with_its_number(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TimesError, match=message):
        from_list(chain(), tmp_path / name)


# -- calls within each other ------------------------------------------------------------------------


def published(reference: Path) -> tuple[Any, dict[str, Any]]:
    path = reference / "timing" / "fixtures" / "kineto_mlp_cpu.json.gz"
    return read_trace(path), json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)


def test_self_times_add_up_to_the_time_of_the_outermost_calls(reference: Path) -> None:
    trace, _ = published(reference)
    caller = callers(trace.ops)
    times = self_ns(trace.ops, caller)
    assert min(times) >= 0
    assert sum(times) == sum(op.end_ns - op.start_ns for op, i in zip(trace.ops, caller, strict=True) if i < 0)
    for op, i in zip(trace.ops, caller, strict=True):
        assert i < 0 or trace.ops[i].start_ns <= op.start_ns <= op.end_ns <= trace.ops[i].end_ns


def test_sequence_numbers_lead_where_the_arrows_of_the_trace_lead(reference: Path) -> None:
    trace, raw = published(reference)
    flows = [e for e in raw["traceEvents"] if e.get("cat") == "fwdbwd"]
    start = {e["id"]: round(e["ts"] * 1000) for e in flows if e["ph"] == "s"}
    arrows = {round(e["ts"] * 1000): start[e["id"]] for e in flows if e["ph"] == "f"}
    forward = forward_calls(trace.ops)
    found = {op.start_ns: trace.ops[i].start_ns for op, i in zip(trace.ops, forward, strict=True) if i >= 0}
    assert len(arrows) == 7
    assert {at: found[at] for at in arrows} == arrows


def test_times_are_exact_to_the_nanosecond_however_long_ago_the_clock_began(tmp_path: Path) -> None:
    now = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1790857026123456.789, "dur": 0.123}]}'
    (tmp_path / "t.json").write_text(now)
    (op,) = read_trace(tmp_path / "t.json").ops
    assert (op.start_ns, op.end_ns) == (1790857026123456789, 1790857026123456912)


def test_a_trace_is_read_in_the_memory_of_its_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", json_stream.CHUNK // 16)
    frame = event("f" * 200, 1.5, 1, "python_function", nested=[{}])
    text = json.dumps({"traceName": 'a]b"', "traceEvents": [frame] * 6_000 + [event("aten::mm", 1, 2)]})
    text = f'{text[:-1]}, "baseTimeNanoseconds": 7}}'
    (tmp_path / "t.json").write_text(text)
    tracemalloc.start()
    trace = read_trace(tmp_path / "t.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(trace.ops), trace.base_ns) == (1, 7)
    assert peak < len(text) / 4


plain = st.none() | st.booleans() | st.integers() | st.text()
nested = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(nested, st.integers(1, 9))
def test_a_stream_has_the_members_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, value: Any, chunk: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "stream.json"
    path.write_text(json.dumps({"first": value, "events": [value, 1, {"a": value}], "last": 12345}, indent=chunk % 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK", chunk)
        found = list(json_stream.members(path, "events", "test"))
    assert found == [("first", value), ("events", value), ("events", 1), ("events", {"a": value}), ("last", 12345)]


# -- kernels and their launches ---------------------------------------------------------------------


def test_an_arrow_joins_a_kernel_whose_launch_is_not_recorded(tmp_path: Path) -> None:
    def arrow(phase: str, ts: float, tid: int) -> dict[str, Any]:
        return {"ph": phase, "cat": "ac2g", "name": "ac2g", "id": 5, "pid": 9, "tid": tid, "ts": ts}

    kernel = event("gemm", 200, 30, "kernel", tid=7)
    path = written(tmp_path / "t.json", [*step(0), arrow("s", 5, 1), arrow("f", 200, 7), kernel])
    assert from_trace(chain("cuda:0"), read_trace(path)).ns[0] == 30_000


def test_an_external_id_joins_a_kernel_where_one_op_alone_has_it(tmp_path: Path) -> None:
    kernel = event("gemm", 200, 30, "kernel", tid=7) | {"args": {"External id": 3}}
    ops = [event("aten::mm", 3, 20) | {"args": {"External id": 3}}, event("aten::relu", 30, 5)]
    assert from_trace(chain("cuda:0"), read_trace(written(tmp_path / "t.json", [*ops, kernel]))).ns[0] == 30_000
    twice = [*ops, event("aten::t", 40, 1) | {"args": {"External id": 3}}]
    assert read_trace(written(tmp_path / "u.json", [*twice, kernel])).orphans == 1


# -- what does not join -----------------------------------------------------------------------------


def test_ops_that_do_not_join_say_why_and_so_does_the_rest_of_the_trace(tmp_path: Path) -> None:
    events = [e for e in step(0) if e["name"] not in ("aten::relu", "aten::relu_inner") and e["ts"] < 60]
    found = told(from_trace(chain(), read_trace(written(tmp_path / "t.json", [*events, event("aten::odd", 70, 6)]))))
    assert found.stand_ins == {1: "not in the trace", 3: "fewer calls in the trace than in the graph"}
    assert any(
        "in calls that are no op of the graph: aten::linear 10.0 us, aten::odd 6.00 us" in note for note in found.notes
    )


def test_a_forward_op_takes_no_call_of_the_backward_pass(tmp_path: Path) -> None:
    builder = Builder()
    given, made = builder.storage(4, Role.INPUT), builder.storage(5, birth=0)
    builder.op([given], [made], name="aten.mm.default")
    builder.op([given], [builder.storage(6, birth=1)], name="aten.mm.default", phase=Phase.BACKWARD)
    node = event("MmBackward0", 50, 40) | {"args": {"Sequence number": 1, "Fwd thread id": 1}}
    shapes = {"Input Dims": [[4]]}
    calls = [event("aten::mm", 55, 20) | {"args": shapes}, event("aten::t", 5, 1) | {"args": {"Sequence number": 1}}]
    durations = from_trace(builder.graph(), read_trace(written(tmp_path / "t.json", [*calls, node])))
    assert told(durations).samples == (0, 1)


@pytest.mark.parametrize("more", ["garbage", '{"traceEvents": []}', "]"])
def test_what_follows_a_trace_is_an_error(tmp_path: Path, more: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": step(100)}) + " \n")
    read_trace(path)
    with path.open("a") as file:
        file.write(more)
    with pytest.raises(TimesError, match="follows the object at character"):
        read_trace(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_times_that_are_no_numbers_are_an_error(tmp_path: Path, value: float) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*step(100), event("aten::mm", 120, value)]}))
    with pytest.raises(TimesError, match="range"):
        read_trace(path)
