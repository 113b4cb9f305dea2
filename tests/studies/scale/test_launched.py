"""A launch of several ranks is predicted as it is, and with other values of its own options."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path

import pytest

from tensortide import capture
from tensortide.errors import CaptureError, DegreesError, ExitStatus
from tensortide.graph import Graph
from tensortide.memory import reserve
from tensortide.reports.sections.launched import document
from tensortide.studies.job import job_from
from tensortide.studies.scale import stacks
from tensortide.studies.scale.launched import Launch, Launched
from tensortide.studies.scale.problem import DegreeRequest
from tensortide.studies.scale.request import ScaleRequest, answer
from tensortide.studies.scale.stacks import STACKS, stack_of, with_degrees
from tensortide.timing.collectives import nodes_of
from tests.recorder.test_ranks import RANKS, sharded

TITAN = "torchrun --nproc_per_node 4 torchtitan/train.py"


@pytest.fixture(scope="module")
def rank() -> Graph:
    return capture(sharded, ranks=RANKS, machine="H100-SXM-80GB")


def studied(
    rank: Graph, command: str = TITAN, captured: Callable[[str], Graph] | None = None, **degrees: int
) -> Launched:
    nodes = nodes_of("H100-SXM-80GB", devices_per_node=RANKS, nodes=1)
    return Launch(command, nodes, 2**40).study(rank, degrees, captured or (lambda _: rank))


def test_the_mesh_of_the_launch_is_predicted_with_its_own_collectives(rank: Graph) -> None:
    found = studied(rank)
    [row] = found.rows
    assert (found.ranks, found.status, row.fits) == (RANKS, ExitStatus.HOLDS, "fits")
    assert row.reserved_bytes == reserve(rank).peak_reserved
    assert row.computing_ns is not None
    assert row.exchange_ns is not None
    assert row.step_ns is not None
    assert max(row.computing_ns, row.exchange_ns) <= row.step_ns <= row.computing_ns + row.exchange_ns
    assert row.low_ns is not None
    assert row.high_ns is not None
    assert row.low_ns < row.step_ns < row.high_ns
    assert {group.kind for group in found.groups} == {"all_gather", "reduce_scatter"}
    assert sum(group.time_ns or 0 for group in found.groups) == pytest.approx(row.exchange_ns, abs=len(rank))
    assert "--parallelism.tensor_parallel_degree" in str(document(found))


def test_the_step_of_a_launch_is_that_of_its_job(rank: Graph) -> None:
    [row], job = (
        studied(rank).rows,
        job_from("train.py", RANKS, {0: rank}, nodes_of("H100-SXM-80GB", devices_per_node=4)),
    )
    assert job.step_time is not None
    assert (row.step_ns, row.low_ns, row.high_ns) == tuple(
        round(ns) for ns in (job.step_time.time_ns, job.step_time.low_ns, job.step_time.high_ns)
    )
    assert (row.reserved_bytes, row.unknown) == (job.rows[0].reserved_bytes, job.step_time.unknown)


def test_other_degrees_are_the_same_command_with_other_options(rank: Graph) -> None:
    ran = []

    def captured(command: str) -> Graph:
        ran.append(command)
        return rank

    found = studied(rank, f"{TITAN} --parallelism.tensor_parallel_degree=1", captured, tensor=2, pipeline=2)
    assert ran == [f"-- {TITAN} --parallelism.tensor_parallel_degree=2 --parallelism.pipeline_parallel_degree 2"]
    assert [row.step_ns for row in found.rows] == [found.rows[0].step_ns] * 2
    assert "--parallelism.pipeline_parallel_degree 2" in str(document(found))


def test_a_launch_that_fails_says_why_and_one_without_options_is_refused(rank: Graph) -> None:
    def captured(command: str) -> Graph:
        raise CaptureError("too many heads")

    assert studied(rank, TITAN, captured, tensor=3).rows[1].reason == "too many heads"
    with pytest.raises(DegreesError, match="--tensor for a launch: no options for degrees are known"):
        studied(rank, "torchrun train.py", tensor=2)
    with pytest.raises(DegreesError, match="DeepSpeed has its degrees in its configuration file"):
        studied(rank, "deepspeed train.py", tensor=2)


def test_a_degree_without_an_option_is_refused_before_the_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise RuntimeError('it ran')")
    target = f"-- torchrun --nproc_per_node 2 {script}"
    with pytest.raises(DegreesError, match="change them in the command after --, as the program names them"):
        answer(ScaleRequest(target=target, degrees=DegreeRequest(tensor=2)))


def test_options_of_a_launcher_stand_behind_it() -> None:
    command = "accelerate launch --cpu train.py --lr 1"
    accelerate = stack_of(command)
    assert accelerate is not None
    once = with_degrees(command, accelerate, {"tensor": 2})
    assert once == (
        "accelerate launch --use_parallelism_config true --parallelism_config_tp_size 2 --cpu train.py --lr 1"
    )
    assert with_degrees(once, accelerate, {"tensor": 4}) == once.replace("tp_size 2", "tp_size 4")
    assert stack_of("python train.py") is None
    assert with_degrees("pretrain_gpt.py --context-parallel-size", STACKS[1], {"context": 2}).endswith("size 2")
    assert doctest.testmod(stacks).failed == 0


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)
def test_every_stack_has_options_or_a_reason(stack: stacks.Stack) -> None:
    assert bool(stack.options) != bool(stack.why_not)
    assert stack.options.keys() <= {"tensor", "pipeline", "context", "expert", "data", "micro_batch"}


def test_options_of_accelerate_are_those_that_it_has() -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    text = Path(launch.__file__).read_text()
    accelerate = next(stack for stack in STACKS if stack.name == "Accelerate")
    assert all(f'"{option}"' in text for option in (*accelerate.options.values(), accelerate.needs[0]))
