"""The placement of a captured step, after the search: run in processes of this machine, given to other tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from tensortide.errors import PlanError, TensortideError
from tensortide.graph import Graph
from tensortide.placements.graphs import Cluster, PlacedStep, Ready
from tensortide.placements.graphs.exports import (
    check_map_pins,
    check_point_pins,
    check_whole,
    device_map,
    map_notes,
    split_points,
)
from tensortide.placements.graphs.units import STEPS
from tensortide.plans import Plan, load_plan
from tensortide.plans.model import plan_writer
from tensortide.progress import Say
from tensortide.request import Opt, Request
from tensortide.studies.placement.request import ClusterRequest
from tensortide.studies.placement.steps import StepCapture, captured
from tensortide.studies.ranks import refuse_predicted, workload_of
from tensortide.targets.opening import settings_of
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.run.placed.seeded import SeededWorkload


@dataclass(frozen=True, kw_only=True)
class ResultRequest(Request):
    """Uses of the placement of a captured step: it is run, or written for other tools."""

    plan: Annotated[Path | None, Opt("Replay this Plan, written by --out, instead of searching.")] = None
    run: Annotated[
        int | None,
        Opt(
            "Also run the placement for this many steps, with a process on this machine per device. The step is "
            "captured for the CPU.",
            least=1,
        ),
    ] = None
    device_map: Annotated[
        Path | None, Opt("Write the device of each module: JSON for accelerate.dispatch_model.", writes=True)
    ] = None
    split_points: Annotated[
        Path | None,
        Opt(
            "Write the modules that begin a stage: JSON for the split_spec of torch.distributed.pipelining.",
            writes=True,
        ),
    ] = None

    GROUP: ClassVar[str] = f"{STEPS}: the result"

    def opened(self, target: str, asked: StepCapture, of: ClusterRequest, say: Say) -> tuple[Cluster, Graph]:
        """The cluster, and the step: as processes build it for the CPU, if it is run.

        Raises RequestError for what cannot run, and RunError for more devices than processes can run here.
        """
        if self.run is None:
            cluster = of.of_steps()
            return cluster, captured(target, asked, cluster, say)
        from tensortide.run.placed.processes import check_ranks
        from tensortide.run.placed.seeded import fused_adam

        cluster = of.of_steps(check_ranks)
        workload_of(target)
        elsewhere = {f"--device {asked.device}": asked.device not in (None, "cpu")}
        refuse_predicted(elsewhere, "--run takes the step that the CPU of this machine runs")
        with fused_adam():
            return cluster, captured(target, replace(asked, device="cpu"), cluster, say)

    def workload(self, target: str, asked: StepCapture) -> SeededWorkload | None:
        """The steps to run, if any."""
        if self.run is None:
            return None
        from tensortide.run.placed.seeded import SeededWorkload

        return SeededWorkload(target, settings_of(workload_of(target), asked), self.run)

    def loaded(self) -> Plan | None:
        """The Plan to play, if one is given. Raises PlanFileError if it cannot be read."""
        if self.plan is None:
            return None
        if not self.plan.exists():
            raise PlanError(f"--plan {self.plan}: there is no such file; --out writes a Plan, and --plan plays it")
        return load_plan(self.plan)

    def check_ready(self, ready: Ready, plan: Plan | None) -> None:
        """Raise PlanError, before a search, if ``plan`` is of another step, or if what is pinned rules a file out, and
        RunError if the step cannot run."""
        for path, check in ((self.device_map, check_map_pins), (self.split_points, check_point_pins)):
            if path is not None:
                with _naming(path):
                    check(ready)
        if plan is not None and self.plan is not None and plan.graph != ready.graph.index.digest:
            device = ready.graph.index.main_device.partition(":")[0]
            ran = ", as --run needs it: a Plan to run is found with --run or --device cpu" if self.run else ""
            raise PlanError(
                f"{self.plan} is a Plan of another step: give the target, --set, --micro-batches, --shard and --data "
                f"that it was made with, and its --device (here the step is captured for {device}{ran})"
                f"{plan_writer(self.plan)}"
            )
        if self.run is not None:
            from tensortide.run.placed.placed_run import check_placed

            groups = 1 if ready.replicas is None else ready.replicas.count
            keep_random = ready.options.grouping.keep_random
            check_placed(ready.graph, ready.problem.devices, keep_random=keep_random, groups=groups)

    def exported(self, found: PlacedStep) -> tuple[list[Path], list[str], list[TensortideError]]:
        """Write the files of other tools: those written, what of the placement its device map cannot say, and the
        errors of those that cannot express it."""
        wrote, notes, failed = list[Path](), list[str](), list[TensortideError]()
        for path, exported in ((self.device_map, device_map), (self.split_points, split_points)):
            if path is None:
                continue
            try:
                with _naming(path):
                    check_whole(found)
                    made = msgspec.json.format(msgspec.json.encode(exported(found.simulated)))
                    wrote.append(write_file(path, made + b"\n"))
                    notes += map_notes(found) if exported is device_map else ()
            except TensortideError as error:
                failed.append(error)
        return wrote, notes, failed


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name ``path`` in an error about a placement that its file cannot express."""
    try:
        yield
    except PlanError as error:
        raise PlanError(f"{path} is not written: {error}") from None
