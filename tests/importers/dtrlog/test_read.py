"""What a log says: events, tensors, storages and their lives."""

from __future__ import annotations

import collections
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import tensortide
from tensortide.graph import TENSOR, Phase, Role, validate
from tensortide.importers.dtrlog.read import read_recording
from tensortide.importers.dtrlog.write import is_log_file
from tensortide.plans.remat.schedule import Event, Recording
from tests.importers.dtrlog.logs import MODELS, SYNTHETIC, WORKED, logs
from tests.reference import dtr_log

Read = Callable[..., Recording]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a text."""

    def reading(text: str, copy_on_write: bool = False) -> Recording:
        path = tmp_path / "some.log"
        path.write_text(text)
        return read_recording(path, copy_on_write=copy_on_write)

    return reading


def described(recording: Recording, names: list[str]) -> list[str]:
    """The events in the words of the worked example; ``names`` are those of the tensors."""
    said = []
    for kind, index in zip(recording.kinds.tolist(), recording.indexes.tolist(), strict=True):
        if kind == Event.COMPUTE:
            op = recording.graph.ops[index]
            made = "".join(f"{names[tensor]}," for tensor in op.outputs)
            said.append(f"({made})=Compute({op.label}/{index})")
        else:
            said.append(f"{Event(kind).name.title()}({names[index]})")
    return said


def test_worked_example_with_copies_on_write() -> None:
    recording = read_recording(WORKED, copy_on_write=True)
    names = ["w", "x", "a", "a$", "av", "b", "s", "c", "d", "g", "h", "gw"]
    assert "; ".join(described(recording, names)) == (
        "(w,)=Compute(constant/0); Pin(w); (x,)=Compute(constant/1); Pin(x); (a,)=Compute(mm/2); "
        "(a$,)=Compute(relu_/3); Release(a); (av,)=Compute(view/4); Get(a$); (b,s,)=Compute(bn/5); Release(a$); "
        "(c,)=Compute(exp/6); (d,)=Compute(mm/7); (g,)=Compute(mm_backward/8); Release(d); Release(c); "
        "(h,)=Compute(bn_backward/9); Release(g); Release(b); Release(s); (gw,)=Compute(mm_backward/10); "
        "Release(w); Get(gw); Release(h); Release(a$); Release(av); Release(x); Pin(gw); Pin(gw)"
    )
    assert sum(recording.durations_ns) == 581
    assert tensortide.timeline(recording.graph).peak_bytes == 234
    assert [s.name for s in recording.graph.storages] == ["w", "x", "a", "a$", "b", "s", "c", "d", "g", "h", "gw"]


def test_worked_example_in_place() -> None:
    recording = read_recording(WORKED)
    graph = recording.graph
    assert [graph.calls[op.call].op for op in graph.ops][:6] == [
        *["dtr.constant.default"] * 2,
        "dtr.mm.default",
        "dtr.relu_.default",
        "dtr.view.default",
        "dtr.bn.default",
    ]
    calls = [graph.calls[op.call] for op in graph.ops]
    assert [call.tags for call in calls[:6]] == [("constant",), ("constant",), (), (), ("view",), ()]
    assert (calls[3].mutated, graph.ops[3].outputs, graph.ops[3].inputs) == ((0,), (), (2,))
    assert calls[5].returns == (TENSOR, TENSOR)
    assert len(set(graph.calls)) == len(graph.calls) < len(graph.ops)
    assert [op.phase for op in graph.ops] == [Phase.FORWARD] * 8 + [Phase.BACKWARD] * 3
    assert [op.label for op in graph.ops][2:5] == ["mm", "relu_", "view"]
    assert recording.durations_ns == (0, 0, 100, 10, 1, 50, 30, 100, 120, 60, 110)
    storages = {s.name: (s.nbytes, s.role, s.birth, s.death) for s in graph.storages}
    assert storages["w"] == (10, Role.INPUT, 0, 11)
    assert storages["a"] == (40, Role.ACTIVATION, 2, 11)
    assert storages["d"] == (40, Role.ACTIVATION, 7, 9)
    assert storages["gw"] == (10, Role.ACTIVATION, 10, None)
    view = graph.tensors[graph.ops[4].outputs[0]]
    assert (view.storage, view.dtype, view.shape, view.strides) == (2, "uint8", (40,), (1,))
    assert (graph.meta.workload, graph.meta.framework, graph.meta.captured_on) == (WORKED.name, "dtr log", "file")
    assert recording.path == str(WORKED)


@pytest.mark.parametrize("model", MODELS)
def test_recorded_models_have_the_published_counts(reference: Path, model: str) -> None:
    path = dtr_log(reference, model)
    (wanted,) = [b for b in json.loads((reference / "dtr" / "baselines.json").read_text()) if b["slug"] == model]
    recording = read_recording(path, copy_on_write=True)
    counts = counted(recording)
    assert counts == {key: wanted[key] for key in counts}


@pytest.mark.parametrize("log", SYNTHETIC)
def test_synthetic_logs_have_the_published_memory(reference: Path, log: str) -> None:
    golden = json.loads(gzip.decompress((reference / "dtr" / "synthetic" / "golden.json.gz").read_bytes()))
    (wanted,) = [b for b in golden["baselines"] if b["log"] == f"{log}.log"]
    counts = counted(read_recording(dtr_log(reference, log), copy_on_write=True))
    shared = counts.keys() & wanted.keys()
    assert shared >= {"ops", "max_memory", "final_memory", "const_memory", "model_compute"}
    assert {key: counts[key] for key in shared} == {key: wanted[key] for key in shared}


def counted(recording: Recording) -> dict[str, Any]:
    """What the original simulator reports of a log, and at an infinite budget if it frees what is released."""
    graph, kinds = recording.graph, collections.Counter(recording.kinds.tolist())
    validate(graph)
    line = tensortide.timeline(graph)
    constants = [op for op in graph.ops if graph.calls[op.call].tags == ("constant",)]
    owners = [tensor.storage for tensor in graph.tensors]
    aliasing = [op for op in graph.ops if {owners[i] for i in op.inputs} & {owners[i] for i in op.outputs}]
    return {
        "ops": len(graph),
        "const_ops": len(constants),
        "compute_ops": len(graph) - len(constants),
        "tensors": len(graph.tensors),
        "alias_ops": len(aliasing),
        "multi_output_ops": sum(len(op.outputs) > 1 for op in graph.ops),
        "n_pin": kinds[Event.PIN],
        "n_get": kinds[Event.GET],
        "n_release": kinds[Event.RELEASE],
        "schedule_len": len(recording.kinds),
        "model_compute": sum(recording.durations_ns),
        "const_memory": sum(graph.storages[owners[op.outputs[0]]].nbytes for op in constants),
        "max_memory": line.peak_bytes,
        "final_memory": line.end_bytes,
    }


@given(logs())
def test_random_logs_are_valid_graphs_with_the_lives_of_their_events(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.mktemp("logs") / "random.log"
    path.write_text(text)
    for copy_on_write in (False, True):
        recording = read_recording(path, copy_on_write=copy_on_write)
        graph = recording.graph
        validate(graph)
        assert len(graph) == len(recording.durations_ns) == np.count_nonzero(recording.kinds == Event.COMPUTE)
        assert tensortide.timeline(graph).start_bytes == 0
        assert [storage.death for storage in graph.storages] == deaths(recording)
        tensortide.save(graph, path.with_suffix(".tide"))
        assert tensortide.open(path.with_suffix(".tide")).graph == graph


def deaths(recording: Recording) -> list[int | None]:
    """When nobody holds anything in a storage any more and no op touches it any more: from the events alone."""
    graph = recording.graph
    held: collections.Counter[int] = collections.Counter()
    alive = [0] * len(graph.storages)
    done = 0
    for kind, index in zip(recording.kinds.tolist(), recording.indexes.tolist(), strict=True):
        alive = [done if held[storage] else known for storage, known in enumerate(alive)]
        if kind == Event.COMPUTE:
            done += 1
            op = graph.ops[index]
            held.update(graph.tensors[tensor].storage for tensor in op.outputs)
            for tensor in (*op.inputs, *op.outputs):
                alive[graph.tensors[tensor].storage] = done
        elif kind != Event.PIN:
            held[graph.tensors[index].storage] += 1 if kind == Event.GET else -1
    return [None if held[storage] else known for storage, known in enumerate(alive)]


# -- rules of the grammar ---------------------------------------------------------------------------


def call(op: str, args: str, result: str, time: int = 1, nbytes: int = 8, alias: int = -1) -> str:
    """A call with at most one result."""
    names = result.split()
    lines = [{"INSTRUCTION": "CALL", "NAME": op, "ARGS": args.split(), "RESULT": names, "TIME": str(time)}]
    for name in names:
        lines.append({"INSTRUCTION": "MEMORY", "NAME": name, "MEMORY": str(nbytes)})
        lines.append({"INSTRUCTION": "ALIAS", "NAME": name, "ALIAS": str(alias)})
    return "".join(json.dumps(line) + "\n" for line in lines)


def line(instruction: str, **fields: Any) -> str:
    return json.dumps({"INSTRUCTION": instruction, **fields}) + "\n"


START = line("ANNOTATE", ANNOTATION="START")


@pytest.mark.parametrize("before", ["", call("f", "", "a"), "no JSON\n", line("RELEASE", NAME="a", MORE="!"), "\xff\n"])
def test_what_precedes_start_is_skipped_valid_or_not(tmp_path: Path, before: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes((before + START + call("g", "", "a")).encode("latin-1"))
    assert [op.label for op in read_recording(path).graph.ops] == ["g"]


def test_a_group_that_start_interrupts_is_skipped(read: Read) -> None:
    assert len(read(line("CONSTANT", NAME="a") + START + call("g", "", "a")).graph) == 1


def test_plain_and_compressed_whatever_the_name(tmp_path: Path) -> None:
    text = WORKED.read_bytes()
    for name, content in (
        ("a.log.gz", gzip.compress(text)),
        ("a.log", gzip.compress(text[:500]) + gzip.compress(text[500:])),
        ("b.gz", text),
        ("c", b"\n  \n" + text.replace(b"\n", b" \r\n\r\n").rstrip()),
    ):
        (tmp_path / name).write_bytes(content)
        again, recording = read_recording(tmp_path / name), read_recording(WORKED)
        assert again.kinds.tolist() == recording.kinds.tolist()
        assert again.graph.ops == recording.graph.ops


def test_views_of_views_lie_in_one_storage_and_no_further_than_it(read: Read) -> None:
    graph = read(call("f", "", "a") + call("view", "a", "b", nbytes=99, alias=0) + call("g", "b b", "c", 1, 3, 1)).graph
    assert [(tensor.storage, tensor.shape) for tensor in graph.tensors] == [(0, (8,)), (0, (8,)), (0, (3,))]
    assert graph.ops[2].inputs == (1, 1)


def test_without_the_annotation_the_backward_starts_where_a_name_says_so(read: Read) -> None:
    text = call("f", "", "a") + call("f_backward", "a", "b") + call("g", "b", "c")
    assert [op.phase.value for op in read(text).graph.ops] == ["forward", "backward", "backward"]
    text += line("ANNOTATE", ANNOTATION="BACKWARD") + call("h", "c", "d")
    assert [op.phase.value for op in read(text).graph.ops] == ["forward"] * 3 + ["backward"]


def test_in_place_with_several_indexes_and_both_copies(read: Read) -> None:
    text = call("f", "", "a") + line("COPY", DST="a2", SRC="a")
    text += line("MUTATE", NAME="swap_", ARGS=["a", "a2"], MUTATE=[1, 0], TIME=7)
    in_place = read(text)
    assert in_place.graph.calls[1].mutated == (1, 0)
    said = "; ".join(described(in_place, ["a"]))
    assert said == "(a,)=Compute(f/0); Get(a); ()=Compute(swap_/1); Pin(a); Pin(a)"
    copies = read(text, copy_on_write=True)
    said = "; ".join(described(copies, ["a", "b", "c"]))
    assert said == "(a,)=Compute(f/0); Get(a); (b,c,)=Compute(swap_/1); Release(a); Release(a); Pin(c); Pin(b)"
    assert [storage.death for storage in copies.graph.storages] == [2, None, None]
    assert copies.graph.calls[1].mutated == ()


def test_a_copy_of_a_view_is_as_large_as_its_storage(read: Read) -> None:
    text = call("f", "", "a", nbytes=64) + call("view", "a", "v", nbytes=8, alias=0)
    graph = read(text + line("MUTATE", NAME="f_", ARGS=["v"], MUTATE=[0], TIME="1"), copy_on_write=True).graph
    assert [(storage.nbytes, storage.name) for storage in graph.storages] == [(64, "a"), (64, "v$")]


def test_what_is_used_or_held_after_its_release_lives_on(read: Read) -> None:
    text = call("f", "", "a") + line("RELEASE", NAME="a") + call("g", "", "b")
    assert read(text).graph.storages[0].death == 1
    assert read(text + call("h", "a", "c")).graph.storages[0].death == 3
    text += line("COPY", DST="a2", SRC="a")
    assert read(text).graph.storages[0].death is None
    assert read(text + line("RELEASE", NAME="a2")).graph.storages[0].death == 2


def test_ops_without_results_are_ops(read: Read) -> None:
    recording = read(call("f", "", "a") + call("item", "a", ""))
    assert recording.graph.ops[1].outputs == ()
    validate(recording.graph)


def test_log_files_by_name() -> None:
    assert all(is_log_file(path) for path in ("a.log", "b/a.jsonl", "a.log.gz", "a.jsonl.gz", WORKED))
    assert not any(is_log_file(path) for path in ("a.gz", "log", "a.py:f", "a.tide", "resnet18", "a.json"))
