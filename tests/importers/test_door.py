"""What a target is: the same for every verb and every function."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import tensortide
from tensortide.errors import GraphFileError, LogError, TensortideError, TimesError, TraceError, WorkloadError
from tensortide.examples.mlp import mlp as example_of_mlp
from tensortide.graph import Graph, save, unrolled
from tensortide.importers.door import File, Held, as_text, resolve
from tensortide.recorder.target import Workload
from tensortide.timing import Durations, identity, save_durations
from tests.importers.files import KINETO, OTHERS, READ, make
from tests.importers.g10.example import write_trace
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT

WORKLOADS = "def step():\n    return lambda: None\n\nnumber = 5\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(WORKLOADS)
    return tmp_path


@pytest.mark.parametrize("kind", ["folder of dumps", "tide", "folder"])
def test_a_bare_name_is_an_example_first(kind: str, folder: Path) -> None:
    make(kind, folder / "gpt2")
    found = resolve("gpt2")
    assert isinstance(found, Workload)
    assert found.function.__module__ == "tensortide.examples.decoders"


@pytest.mark.parametrize("written", ["./gpt2", "{folder}/gpt2", "../{folder.name}/gpt2", "gpt2/"])
def test_with_a_separator_it_is_a_path(written: str, folder: Path) -> None:
    make("folder of dumps", folder / "gpt2")
    found = resolve(written.format(folder=folder))
    assert isinstance(found, File)
    assert found.importer.name == "inductor"


def test_with_a_suffix_it_is_a_path(folder: Path) -> None:
    with pytest.raises(GraphFileError, match=r"cannot read gpt2\.tide: No such file"):
        resolve("gpt2.tide")
    make("log", folder / "gpt2.v2")
    found = resolve("gpt2.v2")
    assert isinstance(found, File)
    assert found.importer.name == "dtrlog"


def test_a_path_object_is_a_path(folder: Path) -> None:
    make("tide", folder / "gpt2")
    assert isinstance(resolve(Path("gpt2")), File)
    with pytest.raises(GraphFileError, match="cannot read mlp"):
        resolve(Path("mlp"))


@pytest.mark.parametrize("kind", READ)
def test_a_bare_name_that_is_no_example_may_be_a_file(kind: str, folder: Path) -> None:
    found = resolve(make(kind, folder / "mystep").name)
    assert isinstance(found, File)
    assert found.importer.name == READ[kind][0]


def test_workloads(folder: Path) -> None:
    found = resolve("mine.py:step")
    assert isinstance(found, Workload)
    assert found.name == "mine.py:step"
    assert resolve("tensortide.examples.mlp:mlp") != found
    make("tide", folder / "mine.py:step")
    assert isinstance(resolve("mine.py:step"), Workload), "a file of that name is no reason to doubt"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gpt3", "no example 'gpt3'; did you mean gpt2"),
        ("mine.py", "mine.py names no function"),
        ("mine.py:stpe", "mine.py has no 'stpe'; did you mean step"),
        ("mine.py:number", "mine.py:number is a int, not a function"),
        ("none.py:step", "there is no file none.py"),
        ("no.such.module:step", "there is no module 'no.such.module'"),
        (":", "is no target"),
        ("", "a target is missing"),
        ("x" * 5000, "no example"),
        ("dir/none.tide", "cannot read dir/none.tide: No such file"),
        ("dir/" + "x" * 5000, "File name too long"),
    ],
)
def test_what_is_nothing_says_so(target: str, message: str, folder: Path) -> None:
    with pytest.raises((WorkloadError, GraphFileError), match=message.replace("(", r"\(")):
        resolve(target)


@pytest.mark.parametrize("kind", sorted(OTHERS.keys() - {"nothing", "broken link"}))
def test_what_nobody_reads_says_what_is_read(kind: str, folder: Path) -> None:
    make(kind, folder / "x.tide")
    with pytest.raises(GraphFileError, match=r"x\.tide is nothing that tensortide reads(.|\n)*a DTR log"):
        tensortide.open("x.tide")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "tensortide reads: it is empty"),
        (b"\x1f\x8bbroken", "tensortide reads: it begins as a file of gzip does, and is damaged from the start"),
        (b"\x1f\x8b\x08\x00", "tensortide reads: it begins as a file of gzip does, and is damaged"),
    ],
    ids=["empty", "no gzip", "cut within its head"],
)
def test_an_empty_or_damaged_file_is_said_to_be_one(content: bytes, message: str, folder: Path) -> None:
    (folder / "x.json.gz").write_bytes(content)
    with pytest.raises(GraphFileError, match=rf"x\.json\.gz is nothing that {message}"):
        tensortide.open("x.json.gz")


@pytest.mark.parametrize("kind", ["Chakra", "execution", "kernels", "log", "dump", "trace", "list", "MetaGraph"])
def test_a_compressed_file_that_is_cut_or_damaged_is_named_with_what_is_wrong(kind: str, folder: Path) -> None:
    whole = make(kind, folder / "plain").read_bytes()
    packed = gzip.compress(whole + b"\n" * 9999)
    for number, damaged in enumerate((packed[:-12], packed[:-12] + b"junkjunkjunk", packed[:-8] + bytes(8))):
        path = folder / f"{number}.gz"
        path.write_bytes(damaged)
        with pytest.raises(TensortideError, match=rf"{number}\.gz.*(damaged|truncated|CRC)"):
            tensortide.open(path, **({"step": "mlp"} if kind in ("trace", "list") else {}))  # type: ignore[arg-type]


def test_a_damaged_chakra_trace_is_known_by_its_name(folder: Path) -> None:
    whole = make("Chakra", folder / "good.et").read_bytes()
    for number, damaged in enumerate(
        (b"\xff" + whole[1:], whole[:9], whole[:30] + b"\xff" * 9 + whole[39:], whole[3:])
    ):
        (folder / f"{number}.et").write_bytes(damaged)
        (folder / f"{number}.et.gz").write_bytes(gzip.compress(damaged))
        for name in (f"{number}.et", f"{number}.et.gz"):
            with pytest.raises(
                (GraphFileError, TimesError), match=rf"{name} is no Chakra trace, or a damaged one: after \d+ nodes: "
            ):
                tensortide.open(name)


def test_a_saved_graph_and_the_durations_beside_it(folder: Path) -> None:
    graph = tensortide.open("mlp", hyperparameters={"batch": 2}).graph
    save(graph, folder / "step.tide")
    opened = tensortide.open("step.tide")
    assert (opened.graph, opened.durations) == (graph, None)
    durations = Durations((7,) * len(graph), "by hand", "recorded", graph=identity(graph))
    save_durations(durations, folder / "step.durations.json")
    assert tensortide.open("step.tide").durations == durations
    save(tensortide.open("mlp", hyperparameters={"batch": 4}).graph, folder / "step.tide")
    with pytest.raises(GraphFileError, match=r"of another graph(.|\n)*lies beside step.tide"):
        tensortide.open("step.tide")
    assert tensortide.open("step.tide", durations=False).durations is None
    with pytest.raises(WorkloadError, match=r"step.tide is a saved graph \(.tide\): settings go with a workload"):
        tensortide.open("step.tide", hyperparameters={"batch": 2})
    with pytest.raises(
        WorkloadError, match=r"step.tide is a saved graph .*: real, assume, first_step and compiled go with a wor"
    ):
        tensortide.open("step.tide", real=True)


def test_a_log_brings_events_and_durations(folder: Path) -> None:
    make("log", folder / "step")
    opened = tensortide.open("step")
    assert opened.events is not None
    assert opened.durations is not None
    assert opened.events.graph is opened.graph
    assert tuple(opened.events.durations_ns) == opened.durations.ns
    opened.durations.check(opened.graph)
    (folder / "step").write_text('{"INSTRUCTION":"CALL","NAME":"f"}\n')
    with pytest.raises(LogError, match="step, line 1"):
        tensortide.open("step")


def test_a_kernel_trace_brings_names_and_exact_times(folder: Path) -> None:
    write_trace(folder / "trace")
    opened = tensortide.open("trace")
    assert len(opened.graph) == len(opened.kernels) == 5
    assert opened.times is not None
    assert opened.durations is not None
    assert sum(opened.durations.ns) == opened.times.total_ns == 150_000
    with pytest.raises(WorkloadError, match=r"trace is a kernel trace .*: backward does not go with it"):
        tensortide.open("trace", backward="x")
    with pytest.raises(WorkloadError, match=r"trace is a kernel trace .*: settings go with"):
        tensortide.open("trace", hyperparameters={"s0": 1})


def test_dumps_with_the_graphs_that_belong_to_them(folder: Path) -> None:
    for name, text in (("forward", FORWARD), ("backward", BACKWARD), ("weight", WEIGHT)):
        (folder / f"fx_graph_transformed_{name}.py").write_text(text)
    forward, backward = folder / "fx_graph_transformed_forward.py", folder / "fx_graph_transformed_backward.py"
    assert len(tensortide.open(folder).graph) == 19
    assert len(tensortide.open(forward).graph) == 5
    assert len(tensortide.open(str(forward), backward=backward).graph) == 12
    with pytest.raises(TraceError, match="name the dump of the forward graph too"):
        tensortide.open(folder, backward=backward)


def test_a_trace_of_a_profiler_times_the_step_that_it_is_of(folder: Path) -> None:
    graph = tensortide.open("mlp", hyperparameters={"batch": 2}).graph
    save(graph, folder / "step.tide")
    (folder / "trace").write_bytes(gzip.compress(json.dumps(KINETO).encode()))
    with pytest.raises(TimesError, match="record_shapes=True"):
        tensortide.open("trace")
    for step in (graph, "step.tide", Path("step.tide")):
        opened = tensortide.open("trace", step=step)
        assert opened.graph == unrolled(graph)
        assert opened.durations is not None
        assert opened.durations.kind == "recorded"
        assert 7000 in opened.durations.ns
    assert tensortide.open("trace", step="mlp", hyperparameters={"batch": 2}).graph.ops == graph.ops


def test_a_metagraph_brings_values_of_its_symbols(folder: Path) -> None:
    make("MetaGraph", folder / "net")
    named = tensortide.open("net", bind=("x=b,16",))
    assert named.symbols["b"] == 8
    bound = tensortide.open("net", bind=("x=b,16",), hyperparameters={"b": 3})
    assert bound.symbols == {**named.symbols, "b": 3}
    with pytest.raises(WorkloadError, match="no symbol 'c'"):
        tensortide.open("net", bind=("x=b,16",), hyperparameters={"c": 3})


def test_options_of_importers_do_not_go_with_a_workload() -> None:
    with pytest.raises(WorkloadError, match="mlp is a workload: preset goes with a file"):
        tensortide.open("mlp", preset="resnet")


def test_a_workload_is_opened_for_a_gpu_and_a_file_is_not(folder: Path) -> None:
    assert tensortide.open("mlp", hyperparameters={"batch": 2}, device="cuda").graph.index.main_device == "cuda:0"
    make("tide", folder / "step.tide")
    with pytest.raises(WorkloadError, match="device, machine, ranks and rank go with a workload or a script"):
        tensortide.open("step.tide", machine="H100-SXM-80GB")


def test_capture_takes_workloads_only(folder: Path) -> None:
    with pytest.raises(WorkloadError, match=r"is the command of a script: tensortide\.open"):
        tensortide.capture("-- python train.py")
    make("tide", folder / "step.tide")
    with pytest.raises(WorkloadError, match=r"step\.tide is a path, and no workload"):
        tensortide.capture("step.tide")
    make("folder", folder / "mlp")
    assert isinstance(tensortide.capture("mlp", hyperparameters={"batch": 2}), Graph)


def test_a_module_of_pytorch_alone_is_told_where_to_go() -> None:
    asked = r"^a ReLU is .* tensortide\.fits\(model, inputs, gpu=\.\.\.\) or tensortide\.capture\(model, inputs, .*\)$"
    with pytest.raises(WorkloadError, match=asked):
        tensortide.open(torch.nn.ReLU())


def test_a_function_is_a_workload_or_a_step() -> None:
    def build(batch: int = 2) -> Any:
        return lambda: torch.ones(batch).sum()

    assert len(tensortide.open(build, hyperparameters={"batch": 3}).graph.tensors) > 0
    assert len(tensortide.open(build()).graph) == len(tensortide.open(build).graph)
    with pytest.raises(WorkloadError, match="needs a value for: x"):
        tensortide.open(lambda x: x)


def test_what_is_given_is_found_by_its_name_where_it_can_be() -> None:
    assert as_text("mlp") == "mlp"
    assert as_text(example_of_mlp) == "tensortide.examples.mlp:mlp"
    assert resolve(as_text(example_of_mlp)) == Workload("tensortide.examples.mlp:mlp", example_of_mlp)
    graph = tensortide.capture("mlp", hyperparameters={"batch": 2})
    for one in (as_text(graph), pickle.loads(pickle.dumps(as_text(graph)))):
        assert one == "mlp"
        found = resolve(one)
        assert isinstance(found, Held)
        assert found.read().graph == graph
        assert str(found) == "mlp is a Graph"
