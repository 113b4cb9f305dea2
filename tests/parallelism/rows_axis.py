"""A new axis of the mesh: ranks share the rows of one parameter, and all that is made with them."""

from __future__ import annotations

from typing import ClassVar

from tensortide.graph import Role
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.degrees import AXES, Degrees, MeshAxis
from tensortide.parallelism.divided_step import Asked, RankStep
from tensortide.parallelism.propagate import ALL, Division, Seed


class RowDegrees(Degrees, frozen=True, kw_only=True):
    """Degrees with one more, which would be a field and a row of them: ``rows`` ranks share those of ``parameter``."""

    axes: ClassVar = (*AXES, MeshAxis("rows", "r", __name__, "exchange of rows"))
    rows: int = 1
    parameter: str = ""


def divide(step: RankStep, asked: Asked) -> RankStep | None:
    """The step of one of the ranks that share rows; None if there are no others."""
    degrees = asked.degrees
    assert isinstance(degrees, RowDegrees)
    if degrees.rows == 1:
        return None
    analysis = analyzed(step.graph)
    named = {each.name: each.tensor for each in step.graph.named if each.role is Role.PARAMETER}
    rows = analysis.axes.leaves(analysis.dims[named[degrees.parameter]][:1])[:1]
    division = Division(analysis, frozenset(rows), degrees.rows, "rows")
    division.require(f"rows={degrees.rows}: {degrees.parameter} is not divided")
    return RankStep(Seed(division, asked.at.along("rows"), combined=ALL).graph(), (division,))
