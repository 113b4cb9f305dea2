"""Artefacts of a configured search, under the names that Exprimo gives them, and a manifest of how they came about."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from rich.console import Console

import tensortide
from tensortide.placements import write_assignment
from tensortide.reports.blocks import Document, Section
from tensortide.reports.drawing import net_picture, render_svg
from tensortide.reports.drawing.tree import MOST_BOXES
from tensortide.reports.pictures import Axis, Points, Scatter
from tensortide.reports.render.archive import render_animation, render_archive
from tensortide.reports.render.figure import render_figure
from tensortide.reports.render.terminal import render_terminal
from tensortide.reports.render.trace import render_trace
from tensortide.reports.sections.placement import document as of_search
from tensortide.reports.sections.placement_measured import section as measured_section
from tensortide.studies.placement.optimizers import GeneticArguments, MapElitesArguments
from tensortide.write import write_files

if TYPE_CHECKING:
    from tensortide.placements.search.session import Elite
    from tensortide.studies.placement.configured import ConfiguredRun

__all__ = ["document", "write_artefacts"]


def document(done: ConfiguredRun) -> Document:
    """Show ``done``: the search, and what was measured after it."""
    made = of_search(done.placed)
    return made if done.second is None else replace(made, sections=(*made.sections, measured_section(done)))


def write_artefacts(done: ConfiguredRun, folder: Path) -> list[Path]:
    """Write everything about ``done`` into ``folder``, and return the paths."""
    made = document(done)
    arguments, placed = done.config.arguments, done.placed
    files: dict[Path, str | bytes] = {
        folder / "output.log": _log(done, made),
        folder / "time_history.csv": _history(done),
        folder / "trace.json": render_trace(made),
        folder / arguments.solution: _solution(done, placed.placement, placed.found.score_ms),
        folder / "manifest.json": _manifest(done),
    }
    if len(placed.run.net.order) <= MOST_BOXES:
        files[folder / "placement.svg"] = render_svg(net_picture(placed.run))
    if isinstance(arguments, GeneticArguments):
        files |= dict(_generations(done, arguments, folder))
    if isinstance(arguments, MapElitesArguments):
        files |= dict(_archives(done, folder))
    wrote = [*write_files(files)]
    subject = placed.subject
    write_assignment(folder / "placement.json", subject.net, placed.placement, subject.cluster)
    wrote.append(folder / "placement.json")
    if done.fastest is not None:
        write_assignment(folder / "measured_placement.json", subject.net, done.fastest, subject.cluster)
        wrote.append(folder / "measured_placement.json")
    return [*wrote, *_figures(done, made, folder)]


def _log(done: ConfiguredRun, made: Document) -> str:
    """The document as text, and what the configuration asks to print besides."""
    out = io.StringIO()
    render_terminal(made, Console(file=out, width=100, highlight=False, no_color=True))
    config, run = done.config, done.placed.run
    if config.benchmark_solution and done.second is None:
        out.write("\nThe solution was not measured: no function that measures it was given (--by).\n")
    if config.print_memory_usage:
        peaks = zip(run.cluster.names, run.peaks, strict=True)
        out.write("".join(f"\npeak of device {name}: {peak:,} bytes" for name, peak in peaks) + "\n")
    if config.print_event_trace:
        out.write("".join(f"\n{event}" for event in run.trace) + "\n")
    return out.getvalue()


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def _history(done: ConfiguredRun) -> str:
    """The best score after each period of placements."""
    found, period = done.placed.found, done.config.arguments.period
    ends = [*range(period, found.proposals, period), found.proposals]
    moments = np.array([one.proposals for one in found.history])
    scores = [one.score_ms for one in found.history]
    rows = [(end, scores[int(np.searchsorted(moments, end, side="right")) - 1]) for end in ends if end >= moments[0]]
    return _table(("placements", "score_ms"), rows)


def _solution(done: ConfiguredRun, placement: Sequence[int], score_ms: float) -> str:
    """The net's own file with the device of each layer, and the score."""
    net: dict[str, Any] = json.loads(done.config.net.read_text("utf-8"))
    devices = dict(zip(done.placed.subject.net.order, placement, strict=True))
    for name, layer in net["layers"].items():
        if layer.get("type") == "Block":
            for inner, sub in layer["layers"].items():
                sub["device"] = devices[f"{name}/{inner}"]
        else:
            layer["device"] = devices[name]
    return json.dumps({**net, "score": score_ms}, indent=1) + "\n"


def _manifest(done: ConfiguredRun) -> str:
    """The origin of the artefacts: seed, mode, versions, inputs by hash, counts."""
    config, placed = done.config, done.placed
    inputs = {str(path): _hash(path) for path in (config.path, config.net, config.device_graph)}
    found = placed.found
    about = {
        "tensortide": tensortide.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mode": placed.run.mode,
        "seed": found.seed,
        "search": repr(placed.algorithm),
        "inputs_sha256": inputs,
        "evaluations": found.evaluations,
        "proposals": found.proposals,
        "ended": found.ended,
        "score_ms": found.score_ms,
        "makespan_ms": placed.run.makespan,
        "over_use_bytes": list(placed.run.over_use),
        "peak_bytes": list(placed.run.peaks),
        "bound_ms": found.bound_ms,
        "last_state_score_ms": found.notes.last[1] if found.notes.last else None,
        "measured": done.second.evaluations if done.second else 0,
    }
    return json.dumps(about, indent=1) + "\n"


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _generations(done: ConfiguredRun, arguments: GeneticArguments, folder: Path) -> Iterable[tuple[Path, str]]:
    """The best of every ``checkpoint_period`` generations, as nets with devices, and their scores."""
    if arguments.checkpoint_period <= 0:
        return ()
    place = folder / "checkpoints"
    if arguments.checkpoint_dir is not None:
        place = folder / Path(arguments.checkpoint_dir).expanduser()
    kept = [*enumerate(done.placed.found.notes.generations)][:: arguments.checkpoint_period]
    files = [(place / f"gen_{n:04}.json", _solution(done, _layers(done, one.best), one.best_ms)) for n, one in kept]
    return [*files, (place / "scores.csv", _table(("generation", "score_ms"), [(n, one.best_ms) for n, one in kept]))]


def _layers(done: ConfiguredRun, placement: Sequence[int]) -> tuple[int, ...]:
    from tensortide.studies.placement.placed_net import layers_of

    base, problem = done.placed.subject.problem()
    return layers_of(base, problem, placement)


def _archives(done: ConfiguredRun, folder: Path) -> Iterator[tuple[Path, str]]:
    notes = done.placed.found.notes
    for steps, elites in notes.archives:
        yield folder / "archive_logs" / f"step_{steps:06}.csv", _cells(elites)
    yield folder / "archive_logs" / "1_simulation_finished.csv", _cells(notes.archive)
    if done.second is not None:
        yield folder / "archive_logs" / "3_benchmarking_finished.csv", _cells(done.second.notes.archive)


def _cells(elites: Iterable[Elite]) -> str:
    rows = ((_words(elite.cell), elite.score_ms, _words(elite.placement)) for elite in elites)
    return _table(("niche", "score_ms", "placement"), rows)


def _words(numbers: Sequence[float]) -> str:
    return " ".join(map(str, numbers))


def _figures(done: ConfiguredRun, made: Document, folder: Path) -> Iterator[Path]:
    """Draw what the configuration asks for."""
    arguments, notes = done.config.arguments, done.placed.found.notes
    if done.config.plot_event_trace:
        yield render_figure(made, folder / "event_trace.pdf", ("timeline", "memory"))
    if isinstance(arguments, GeneticArguments) and notes.generations:
        x = tuple(range(len(notes.generations)))
        best, mean = ([getattr(one, name) for one in notes.generations] for name in ("best_ms", "mean_ms"))
        if arguments.plot_fitness_history:
            ceiling = 50 * min(best)
            average = tuple(value if value <= ceiling else None for value in mean)
            times = [Points("best of the generation", x, tuple(best), joined="line")]
            times += [Points("mean of the generation", x, average, joined="line")] if any(average) else []
            path, title = folder / "fitness_history.pdf", "Time of each generation"
            yield _curve(made.title, title, path, Axis("time, ms", log=True), tuple(times))
        if arguments.print_diversity:
            spread = tuple(one.diversity for one in notes.generations)
            points = (Points("share of genes that differ", x, spread, joined="line"),)
            path, title = folder / "diversity_history.pdf", "Differences within each generation"
            y = Axis("layers that differ between two", "share", from_zero=True)
            yield _curve(made.title, title, path, y, points)
    if isinstance(arguments, MapElitesArguments) and notes.archive:
        sizes = archive_sizes(done, arguments)
        if arguments.show_score_plot:
            path, title = folder / "archive_plot.pdf", f"{made.title}: best placement of each kind"
            yield render_archive(notes.archive, sizes, arguments.plot_axes, path, title)
        if arguments.plot_animation and notes.archives:
            path, speed = folder / "archive_animation.gif", arguments.animation_fps
            yield render_animation(notes.archives, sizes, arguments.plot_axes, path, speed)


def archive_sizes(done: ConfiguredRun, arguments: MapElitesArguments) -> list[int]:
    """The number of cells along each axis of the archive."""
    problem = done.placed.subject.problem()[1]
    whole = (problem.devices, problem.devices, len(problem.edges) + 1)
    return [size if size > 0 else most for size, most in zip(arguments.sizes, whole, strict=True)]


def _curve(net: str, title: str, path: Path, y: Axis, points: tuple[Points, ...]) -> Path:
    scatter = Scatter(key="history", title=title, x=Axis("generation", "count"), y=y, points=points)
    return render_figure(Section("history", title, blocks=(scatter,)).document(net), path)
