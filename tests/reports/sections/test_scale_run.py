"""Section ``scale_run``: what ranks exchanged beside what their Graphs have, and losses beside those of one process."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest
import torch

from tensortide.parallelism import Degrees
from tensortide.parallelism.pipelines import Run, RunKind, Task
from tensortide.reports import page
from tensortide.reports.blocks import Note, Section
from tensortide.reports.pictures import SpanLane, Spans
from tensortide.reports.render.figure import ROLE_COLORS
from tensortide.reports.sections.scale import section as predicted
from tensortide.reports.sections.scale_run import section
from tensortide.run.placed.divided import DividedWorkload, MeasuredRun, RankRun
from tensortide.run.placed.rank_program import RankCollectives
from tensortide.studies.scale import DegreeRequest, Problem, Scale, scale
from tests.studies.scale.test_captured import node, plain, step

PAGE = Path(page.__path__[0]) / "page.css"

PLANNED = [RankCollectives("all_reduce", "data", 1, 4000)]


def measured() -> MeasuredRun:
    runs = [
        Run(RunKind.FORWARD, Task(True, 0, 0), 0, 1000, 1300),
        Run(RunKind.BACKWARD, Task(False, 0, 0), 0, 1300, 1800),
        Run(RunKind.EXCHANGE_REPLICAS, Task(False, 0, 0), 0, 1800, 2000),
    ]
    ranks = [
        RankRun([[[torch.tensor(2.0)]]], [1000], [run._replace(lane=rank) for run in runs], PLANNED, {1 - rank: 4000})
        for rank in range(2)
    ]
    return MeasuredRun(
        DividedWorkload("mlp", {}, degrees=Degrees(data=2), steps=1), ranks, [PLANNED, PLANNED], [2.02], 1e-5
    )


@functools.cache
def scaled() -> Scale:
    """A step of two replicas, as it is predicted."""
    degrees = DegreeRequest(data=2, tensor=1, micro_batch=4)
    return scale(Problem(nodes=node(2), base=plain(), degrees=degrees), step())


def notes(made: Section) -> str:
    return " ".join(block.text for block in made.blocks if isinstance(block, Note))


def test_ranks_losses_and_bytes_are_shown() -> None:
    found = scaled()
    made = section(found, measured())
    assert made.table("losses")["loss"] == (2.0,)
    ranks = made.table("ranks")
    assert ranks["exchanged_bytes"] == ranks["planned_bytes"] == (4000, 4000)
    assert ranks["busy_share"] == (0.8, 0.8)
    assert all(isinstance(share, float) and 0 < share < 1 for share in ranks["predicted_share"])
    assert "as their Graphs have it" in notes(made)
    other = dataclasses.replace(measured(), predicted=[PLANNED, []])
    assert "other bytes" in notes(section(found, other))
    held = section(found, dataclasses.replace(measured(), held={"aten.add_.Tensor": (0.5, 0.25)}))
    assert "aten.add_.Tensor has 0.5, then 0.25. Every process" in notes(held)
    assert "learning-rate" not in notes(made)


@pytest.mark.parametrize(
    ("alone", "text", "kind", "flags"),
    [
        (2.0, "The loss of 1 step is bit-identical to that of one process.", "verdict", (True, True)),
        (2.0 - 2.0**-23, "but for rounding: the largest difference is 6.0e-08 of the loss", "verdict", (False, True)),
        (
            2.0 - 0.0018,
            "differs from that of one process by up to 9.0e-04 of the loss, more than rounding explains (1e-05).",
            "failure",
            (False, False),
        ),
        (float("nan"), "is not that of one process: a loss is not a number in one", "failure", (False, False)),
        (0.0, "is not that of one process: a loss is 0, infinite or missing in one", "failure", (False, False)),
    ],
)
def test_the_verdict_and_the_data_say_how_far_losses_are_from_one_process(
    alone: float, text: str, kind: str, flags: tuple[bool, bool]
) -> None:
    found = scaled()
    ran = dataclasses.replace(measured(), alone=[alone])
    made = section(found, ran)
    verdict = made.blocks[0]
    assert isinstance(verdict, Note)
    assert text in verdict.text
    assert verdict.kind == kind
    assert (made.fact("same_losses"), made.fact("losses_agree"), made.fact("bytes_as_planned")) == (*flags, True)
    assert made.table("losses")["same"] == ("yes" if flags[0] else "no",)
    assert ran.verified == (kind == "verdict")
    ranks = [lossless(each) for each in measured().ranks]
    none = section(found, dataclasses.replace(measured(), alone=[], ranks=ranks))
    assert "The step returns no loss." in notes(none)


def test_a_zero_of_another_sign_is_not_bit_identical() -> None:
    found = scaled()
    ranks = [dataclasses.replace(each, outputs=[[[torch.tensor(0.0)]]]) for each in measured().ranks]
    made = section(found, dataclasses.replace(measured(), alone=[-0.0], ranks=ranks))
    assert (made.fact("same_losses"), made.fact("losses_agree")) == (False, True)
    assert "is that of one process but for rounding: the largest difference is 0.0e+00" in notes(made)


def lossless(rank: RankRun) -> RankRun:
    return dataclasses.replace(rank, outputs=[[]])


def lanes(made: Section) -> tuple[SpanLane, ...]:
    (shown,) = (block for block in made.blocks if isinstance(block, Spans))
    return shown.lanes


def test_predicted_and_measured_lanes_have_the_same_names_and_kinds_of_the_same_colours() -> None:
    found = scaled()
    planned, ran = lanes(predicted(found)), lanes(section(found, measured()))
    assert [lane.label for lane in planned] == [lane.label for lane in ran] == ["rank 0", "rank 1"]
    kinds, measured_kinds = ({kind for lane in some for kind in lane.kinds} for some in (planned, ran))
    assert kinds == {"forward", "backward", "exchange", "optimizer", "other"}
    assert measured_kinds == {"forward", "backward", "exchange"}
    names, measured_names = ({name for lane in some for name in lane.names} for some in (planned, ran))
    assert measured_names <= names
    degrees = DegreeRequest(pipeline=2, tensor=1, micro_batch=1)
    divided = scale(Problem(nodes=node(2), base=plain(), degrees=degrees), step())
    passed = {kind for lane in lanes(predicted(divided)) for kind in lane.kinds}
    assert passed == {*kinds, "transfer"}
    assert passed <= ROLE_COLORS.keys()  # figures colour others by how many there are
    assert all(f"--{kind}: " in PAGE.read_text() for kind in passed)


def test_shares_of_computation_are_those_of_the_lanes() -> None:
    found = scaled()
    made = section(found, measured())
    assert found.best is not None
    assert found.best.found is not None
    parts, whole = found.best.found.parts, found.best.found.time.time_ns
    shares = made.table("ranks")["predicted_share"]
    assert [float(str(each)) for each in shares] == pytest.approx([parts["compute"] / whole] * 2)
    assert made.fact("last_step_ns") == 1000
    assert made.table("ranks")["stage"] == (1, 1)
    assert made.table("ranks")["replica"] == (1, 2)
