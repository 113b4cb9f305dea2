"""``tensortide place`` of a captured step, after the search: run in processes of this machine, given to other tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from cyclopts import Parameter, validators

from tensortide.cli.interrupt import end_requests, postponed
from tensortide.cli.rank_run import refuse_predicted, workload_of
from tensortide.cli.source import CaptureOptions, option, settings_of
from tensortide.errors import PlanError, TensortideError
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.placements.graphs import PlacedStep, Ready
    from tensortide.plans import Plan
    from tensortide.reports.blocks import Section

Captured = TypeVar("Captured", bound=CaptureOptions)


@dataclass
class Done:
    """The outcome: files written, sections to show, and errors and ``interrupts``, at most one, to raise afterwards.
    ``verified``: no run, or one that agrees with a single process and with the Plan."""

    wrote: list[Path] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    failed: list[TensortideError] = field(default_factory=list)
    interrupts: list[KeyboardInterrupt] = field(default_factory=list)
    verified: bool = True

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Store an error in ``failed`` instead of raising it, so that later parts still run."""
        try:
            yield
        except TensortideError as error:
            self.failed.append(error)

    def raise_errors(self) -> None:
        """Raise what interrupted the run, or what is in ``failed``: several errors become one, a line each."""
        for interrupt in self.interrupts:
            raise interrupt
        if len(self.failed) > 1:
            raise TensortideError("\n".join(map(str, self.failed)))
        for error in self.failed:
            raise error


@contextmanager
def _naming(path: Path | None) -> Iterator[None]:
    """Name ``path`` in an error about a placement that its file cannot express."""
    try:
        yield
    except PlanError as error:
        raise PlanError(f"{path} is not written: {error}") from None


@Parameter(name="*", group="Captured steps: the result")
@dataclass(frozen=True)
class ResultOptions:
    """Options for the resulting placement of a captured step: run it, or write it for other tools."""

    plan: Annotated[Path | None, option("--plan", "Replay this Plan, written by --out, instead of searching.")] = None
    run: Annotated[
        int | None,
        Parameter(
            help="Also run the placement for this many steps, with a process on this machine per device. The step is "
            "captured for the CPU.",
            show_default=False,
            validator=validators.Number(gte=1),
        ),
    ] = None
    device_map: Annotated[
        Path | None, option("--device-map", "Write the device of each module: JSON for accelerate.dispatch_model.")
    ] = None
    split_points: Annotated[
        Path | None,
        option(
            "--split-points",
            "Write the modules that begin a stage: JSON for the split_spec of torch.distributed.pipelining.",
        ),
    ] = None

    @property
    def files(self) -> dict[str, Path | None]:
        """The files that the options name."""
        return {"--plan": self.plan, "--device-map": self.device_map, "--split-points": self.split_points}

    @property
    def checks_devices(self) -> Callable[[int], None] | None:
        """Raises RunError for more devices than processes can run here; None if the step is not run."""
        from tensortide.run.placed.processes import check_ranks

        return None if self.run is None else check_ranks

    def check(self, target: str, options: Captured) -> Captured:
        """The options of the capture, for the CPU if the step is run. Raises WorkloadError for what cannot run, and
        OutputError for a file that cannot be written."""
        for path in (self.device_map, self.split_points):
            if path is not None:
                check_writable(path)
        if self.run is None:
            return options
        workload_of(target)
        given = {
            f"--device {options.device}": options.device not in (None, "cpu"),
            "--ranks": options.ranks is not None,
            "--compiled": options.compiled,
            "--first-step": options.first_step,
        }
        refuse_predicted(given, "--run takes the step that the CPU of this machine runs")
        return replace(options, device="cpu")

    def capturing(self) -> AbstractContextManager[None]:
        """The context of the capture: that in which processes build the step, if it is run."""
        if self.run is None:
            return nullcontext()
        from tensortide.run.placed.seeded import fused_adam

        return fused_adam()

    def loaded(self) -> Plan | None:
        """The Plan to play, if one is given. Raises PlanFileError if it cannot be read."""
        from tensortide.plans import load_plan

        if self.plan is None:
            return None
        if not self.plan.exists():
            raise PlanError(f"--plan {self.plan}: there is no such file; --out writes a Plan, and --plan plays it")
        return load_plan(self.plan)

    def check_ready(self, ready: Ready, plan: Plan | None, *, keep_random: bool) -> None:
        """Raise PlanError, before a search, if ``plan`` is of another step, or if what is pinned rules a file out, and
        RunError if the step cannot run."""
        from tensortide.placements.graphs.exports import check_map_pins, check_point_pins

        for path, check in ((self.device_map, check_map_pins), (self.split_points, check_point_pins)):
            if path is not None:
                with _naming(path):
                    check(ready)
        if plan is not None and self.plan is not None and plan.graph != ready.graph.index.digest:
            from tensortide.plans.model import plan_writer

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
            check_placed(ready.graph, ready.problem.devices, keep_random=keep_random, groups=groups)

    def carried_out(self, found: PlacedStep, target: str, options: CaptureOptions) -> Done:
        """Export and run ``found``; what interrupts the run is to be raised afterwards."""
        from tensortide.placements.graphs.exports import check_whole, device_map, map_notes, split_points
        from tensortide.reports.sections.device_map import section as map_section

        done = Done()
        for path, exported in ((self.device_map, device_map), (self.split_points, split_points)):
            with done.attempt(), _naming(path):
                if path is not None:
                    check_whole(found)
                    made = msgspec.json.format(msgspec.json.encode(exported(found.simulated)))
                    done.wrote.append(write_file(path, made + b"\n"))
                    notes = [*map_notes(found)] if exported is device_map else []
                    done.sections += [map_section(notes)] if notes else []
        with done.attempt(), postponed() as done.interrupts:
            if self.run is not None and found.fits:
                end_requests()
                section, done.verified = self._measured(found, target, options)
                done.sections.append(section)
        return done

    def _measured(self, found: PlacedStep, target: str, options: CaptureOptions) -> tuple[Section, bool]:
        """The section of a run, and whether the run agrees with a single process and with the Plan. Raises RunError
        with the message of the rank that failed first."""
        from tensortide.reports.sections.placed_run import section
        from tensortide.run.placed.groups import groups_of
        from tensortide.run.placed.placed_run import Parts, PlacedWorkload, run_placed

        assert self.run is not None
        ready = found.ready
        many = ready.problem.batches
        workload = PlacedWorkload(target, settings_of(workload_of(target), options), many, self.run)
        parts = Parts(ready.whole, ready.sharded.pieces) if ready.sharded.shards else None
        measured = run_placed(workload, ready.graph, found.plan, parts, groups_of(found))
        return section(found, measured), measured.verified
