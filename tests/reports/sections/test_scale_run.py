"""Section ``scale_run``: what ranks exchanged beside what their Graphs have, and losses beside those of one process."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from tensortide.parallelism import Degrees
from tensortide.parallelism.pipelines import Pass, Run, Task
from tensortide.reports import page
from tensortide.reports.blocks import Note, Section
from tensortide.reports.pictures import Spans
from tensortide.reports.render.figure import ROLE_COLORS
from tensortide.reports.sections.scale import section as predicted
from tensortide.reports.sections.scale_run import section
from tensortide.run.placed.divided import DividedWorkload, MeasuredRun, RankRun
from tensortide.run.placed.rank_program import RankCollectives
from tensortide.studies.scale import Request, scale
from tests.studies.scale.test_captured import node, plain, step

PAGE = Path(page.__path__[0]) / "page.css"

PLANNED = [RankCollectives("all_reduce", "data", 1, 4000)]


def measured() -> MeasuredRun:
    runs = [
        Run(Pass.FORWARD, Task(True, 0, 0), 0, 1000, 1300),
        Run(Pass.BACKWARD, Task(False, 0, 0), 0, 1300, 1800),
        Run(Pass.EXCHANGE, Task(False, 0, 0), 0, 1800, 2000),
    ]
    ranks = [
        RankRun([[[torch.tensor(2.0)]]], [1000], [run._replace(rank=rank) for run in runs], PLANNED, {1 - rank: 4000})
        for rank in range(2)
    ]
    return MeasuredRun(DividedWorkload("mlp", {}, Degrees(data=2), steps=1), ranks, [PLANNED, PLANNED], [2.02])


def notes(made: Section) -> str:
    return " ".join(block.text for block in made.blocks if isinstance(block, Note))


def test_ranks_losses_and_bytes_are_shown() -> None:
    found = scale(Request(cluster=node(2), base=plain(), data=2, tensor=1, micro_batch=4), step())
    made = section(found, measured())
    assert made.table("losses")["loss"] == (2.0,)
    ranks = made.table("ranks")
    assert ranks["bytes"] == ranks["planned"] == (4000, 4000)
    assert ranks["busy"] == (0.8, 0.8)
    assert all(isinstance(share, float) and 0 < share < 1 for share in ranks["predicted"])
    assert "as their Graphs have it" in notes(made)
    other = dataclasses.replace(measured(), predicted=[PLANNED, []])
    assert "other bytes" in notes(section(found, other))
    held = section(found, dataclasses.replace(measured(), held={"aten.add_.Tensor": (0.5, 0.25)}))
    assert "aten.add_.Tensor has 0.5, then 0.25. Every process" in notes(held)
    assert "learning-rate" not in notes(made)


def kinds(made: Section) -> set[str]:
    """Kinds of intervals in the lanes of a section."""
    (shown,) = (block for block in made.blocks if isinstance(block, Spans))
    return {kind for lane in shown.lanes for kind in lane.kinds}


def test_predicted_and_measured_lanes_have_kinds_of_the_same_names_and_colours() -> None:
    found = scale(Request(cluster=node(2), base=plain(), pipeline=2, tensor=1, micro_batch=1), step())
    planned, ran = kinds(predicted(found)), kinds(section(found, measured()))
    assert planned == {"forward", "backward", "transfer"}
    assert ran == {"forward", "backward", "exchange"}
    assert planned | ran <= ROLE_COLORS.keys()  # figures colour others by how many there are
    assert all(f"--{kind}: " in PAGE.read_text() for kind in planned | ran)
