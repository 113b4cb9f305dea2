"""Artefacts of a configured search for placements, under the names that Exprimo gives them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tensortide
from tensortide.placements.genes import text_of
from tensortide.placements.nets.assignments import assignment_text
from tensortide.reports.blocks import Document, Section
from tensortide.reports.drawing import picture_of, render_svg
from tensortide.reports.drawing.tree import MOST_BOXES
from tensortide.reports.pictures import Axis, Points, Scatter
from tensortide.reports.render.archive import render_animation, render_archive
from tensortide.reports.render.figure import render_figure
from tensortide.reports.render.terminal import render_text
from tensortide.reports.render.trace import render_trace
from tensortide.reports.sections.placement import of_configured
from tensortide.studies.placement.optimizers import GeneticArguments, MapElitesArguments
from tensortide.write import write_files

if TYPE_CHECKING:
    from tensortide.placements.genes import OnDevices
    from tensortide.placements.search.session import Elite
    from tensortide.studies.placement.configured import ConfiguredRun
    from tensortide.studies.placement.placed_net import NetSubject


def write_artefacts(done: ConfiguredRun, folder: Path) -> list[Path]:
    """Write everything about ``done`` into ``folder``, and return the paths."""
    made = of_configured(done)
    files = {folder / name: content for name, content in _files(done, made)}
    return [*write_files(files), *_figures(done, made, folder)]


def _files(done: ConfiguredRun, made: Document) -> Iterator[tuple[str, str | bytes]]:
    arguments, placed, subject = done.config.arguments, done.placed, done.placed.subject
    yield "output.log", _log(done, made)
    yield "time_history.csv", _history(done)
    yield "trace.json", render_trace(made)
    yield arguments.SOLUTION, _solution(done, placed.placement, placed.search.score_ms)
    if done.processors is not None:
        yield "processor_util.csv", _table(done.processors.head, done.processors.rows)
    yield "manifest.json", json.dumps(_manifest(done), indent=1) + "\n"
    if len(subject.net.order) <= MOST_BOXES:
        yield "placement.svg", render_svg(picture_of(placed))
    if isinstance(arguments, GeneticArguments) and (period := arguments.checkpoint_period) > 0:
        given = arguments.checkpoint_dir
        place = Path("checkpoints" if given is None else given).expanduser()
        kept = [*enumerate(placed.search.notes.generations)][::period]
        for n, one in kept:
            yield f"{place}/gen_{n:04}.json", _solution(done, subject.problem.on_devices(one.best), one.best_ms)
        yield f"{place}/scores.csv", _table(("generation", "score_ms"), [(n, one.best_ms) for n, one in kept])
    if isinstance(arguments, MapElitesArguments):
        archives = {f"step_{steps:06}": elites for steps, elites in placed.search.notes.archives}
        archives["1_simulation_finished"] = placed.search.notes.archive
        if done.second is not None:
            archives["3_benchmarking_finished"] = done.second.notes.archive
        yield from ((f"archive_logs/{name}.csv", _cells(subject, elites)) for name, elites in archives.items())
    for name, layers in (("placement.json", placed.placement), ("measured_placement.json", done.fastest)):
        if layers is not None:
            yield name, assignment_text(subject.net, layers, subject.cluster)


def _log(done: ConfiguredRun, made: Document) -> str:
    """The document as text, and what the configuration asks to print besides."""
    out = io.StringIO()
    out.write(render_text(made))
    config, run = done.config, done.placed.simulated
    if config.print_memory_usage:
        peaks = zip(run.cluster.names, run.peaks, strict=True)
        out.write("".join(f"\npeak of device {name}: {peak:,} bytes" for name, peak in peaks) + "\n")
    if config.print_event_trace:
        out.write("".join(f"\n{event}" for event in run.trace) + "\n")
    return out.getvalue()


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((head, *rows))
    return out.getvalue()


def _history(done: ConfiguredRun) -> str:
    """The best score after each period of placements."""
    found, period = done.placed.search, done.config.arguments.period
    ends = [*range(period, found.proposals, period), found.proposals]
    last = np.searchsorted([one.proposals for one in found.history], ends, side="right") - 1
    rows = ((end, found.history[at].score_ms) for end, at in zip(ends, last.tolist(), strict=True) if at >= 0)
    return _table(("placements", "score_ms"), rows)


def _solution(done: ConfiguredRun, layers: Sequence[OnDevices], score_ms: float) -> str:
    """The net's own file with the device of each layer, and the score."""
    net: dict[str, Any] = json.loads(done.config.net.read_text("utf-8"))
    devices = dict(zip(done.placed.subject.net.order, layers, strict=True))
    for name, layer in net["layers"].items():
        if layer.get("type") == "Block":
            for inner, sub in layer["layers"].items():
                sub["device"] = devices[f"{name}/{inner}"]
        else:
            layer["device"] = devices[name]
    return json.dumps({**net, "score": score_ms}, indent=1) + "\n"


def _manifest(done: ConfiguredRun) -> dict[str, Any]:
    """The origin of the artefacts: seed, mode, versions, inputs by hash, counts."""
    config, found, run, single = done.config, done.placed.search, done.placed.simulated, done.placed.single
    inputs = (config.path, config.net, config.device_graph)
    return {
        "tensortide": tensortide.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mode": run.mode,
        "seed": found.seed,
        "search": repr(done.placed.algorithm),
        "inputs_sha256": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs},
        **{name: getattr(found, name) for name in ("evaluations", "proposals", "ended", "score_ms")},
        "makespan_ms": run.makespan,
        "over_use_bytes": list(run.over_use),
        "peak_bytes": list(run.peaks),
        "bound_ms": found.bound_ms,
        "last_state_score_ms": found.notes.last[1] if found.notes.last else None,
        "single_device_ms": None if single is None else single.score,
        "study_score_ms": min(found.score_ms, math.inf if single is None else single.score),
        "measured": done.second.evaluations if done.second else 0,
    }


def _cells(subject: NetSubject, elites: Iterable[Elite]) -> str:
    placed = ((one, text_of(subject.problem.on_devices(one.placement))) for one in elites)
    rows = ((" ".join(map(str, one.cell)), one.score_ms, placement) for one, placement in placed)
    return _table(("niche", "score_ms", "placement"), rows)


def _figures(done: ConfiguredRun, made: Document, folder: Path) -> Iterator[Path]:
    """Draw what the configuration asks for."""
    arguments, notes = done.config.arguments, done.placed.search.notes
    if done.config.plot_event_trace:
        yield render_figure(made, folder / "event_trace.pdf", ("timeline", "memory"))
    if isinstance(arguments, GeneticArguments) and notes.generations:
        for name, history in _histories(done, arguments):
            section = Section("history", history.title, blocks=(history,))
            yield render_figure(section.document(made.title), folder / name)
    if isinstance(arguments, MapElitesArguments) and notes.archive:
        problem = done.placed.subject.problem
        whole = (problem.devices, problem.devices, len(problem.edges) + 1)  # cells along each axis of the archive
        sizes = [size if size > 0 else most for size, most in zip(arguments.sizes, whole, strict=True)]
        axes, title = arguments.plot_axes, f"{made.title}: best placement of each kind"
        if arguments.show_score_plot:
            yield render_archive(notes.archive, sizes, axes, folder / "archive_plot.pdf", title)
        if arguments.plot_animation and notes.archives:
            path, speed = folder / "archive_animation.gif", arguments.animation_fps
            yield render_animation(notes.archives, sizes, axes, path, speed)


def _histories(done: ConfiguredRun, arguments: GeneticArguments) -> Iterator[tuple[str, Scatter]]:
    generations, along = done.placed.search.notes.generations, Axis("generation", "count")
    x, best = tuple(range(len(generations))), tuple(one.best_ms for one in generations)
    if arguments.plot_fitness_history:
        mean = tuple(one.mean_ms if one.mean_ms <= 50 * min(best) else None for one in generations)
        lines = [Points("best of the generation", x, best, joined="line")]
        lines += [Points("mean of the generation", x, mean, joined="line")] if any(mean) else []
        title, y = "Time of each generation", Axis("time, ms", log=True)
        yield "fitness_history.pdf", Scatter(key="history", title=title, x=along, y=y, points=tuple(lines))
    if arguments.print_diversity:
        spread = tuple(one.diversity for one in generations)
        line = Points("share of genes that differ", x, spread, joined="line")
        title, y = "Differences within each generation", Axis("layers that differ between two", "share", from_zero=True)
        yield "diversity_history.pdf", Scatter(key="history", title=title, x=along, y=y, points=(line,))
