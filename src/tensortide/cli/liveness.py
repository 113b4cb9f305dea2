"""``tensortide liveness``: how long memory lies idle, and what is worth moving away or computing again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions
from tensortide.cli.livenessfiles import ExportOptions, Source, source_of, source_of_config
from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Target,
    Top,
    console,
    is_stdout,
    option,
    print_json,
    progress,
)
from tensortide.errors import OutputError, WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.recorder.resolver import resolver
from tensortide.reports.liveness import LivenessStudy, study, with_liveness
from tensortide.timing import Link
from tensortide.timing import link as parse_link
from tensortide.units import format_bytes, format_percent
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.timelines.liveness import Mode

LinkName = Annotated[
    str,
    Parameter(
        help="Link that memory could be moved over: nvme, pcie3, pcie4, pcie5, or a speed: 25GB/s, or with its latency "
        "25GB/s,10us."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class LivenessFiles:
    """What is written beside the text."""

    plot: Annotated[Path | None, option("--plot", "Draw an overview (.png, .svg, .pdf).")] = None
    figures: Annotated[
        Path | None, option("--figures", "Folder for each figure as PNG and SVG; it is made if it is not there.")
    ] = None
    html: Annotated[
        Path | None, option("--html", "Write the report as one offline HTML page; its folder is made if it is missing.")
    ] = None
    trace: Annotated[Path | None, option("--trace", "Write a trace for Perfetto or chrome://tracing.")] = None
    csv: Annotated[Path | None, option("--csv", "Write one row per storage (per tensor with --mode compat).")] = None

    def check(self) -> list[Path]:
        """The files to be written, as far as can be told before. Raises OutputError if one cannot be."""
        from tensortide.reports.render.figure import check_figure

        found = [
            check_writable(path, folders=path is self.html)
            for path in (self.html, self.trace, self.csv)
            if path is not None
        ]
        if self.plot is not None:
            found.append(check_figure(self.plot))
        if self.figures is not None and self.figures.exists() and not self.figures.is_dir():
            raise OutputError(f"cannot write figures into {self.figures}: it is a file. Give the name of a folder.")
        return found


def liveness(
    target: Target | None = None,
    /,
    *,
    config: Annotated[
        Path | None, option("--config", "Do what a configuration file of the tensor liveness tool says, and show it.")
    ] = None,
    link: LinkName = "pcie4",
    mode: Annotated[
        Literal["storage", "compat"] | None,
        Parameter(
            show_default=False,
            help="What lives: storages with all views of them, or (compat) every tensor by itself, as kernel traces "
            "have it.",
        ),
    ] = None,
    device: Annotated[
        str | None, option("--device", "Device whose memory is looked at (default: that of the most bytes).")
    ] = None,
    compare: Annotated[
        str | None,
        option(
            "--compare",
            "Another target, or other settings of this one (batch=16,seq=512), to show beside it.",
        ),
    ] = None,
    top: Top = 10,
    files: LivenessFiles = LivenessFiles(),
    export: ExportOptions = ExportOptions(),  # noqa: B008
    compiled: Annotated[
        bool, option("--compiled", "The forward and backward graph that torch.compile makes of the workload's model.")
    ] = False,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show how long the memory of one step lies idle between uses, and which tensors are most worth moving elsewhere or
    computing again.
    """
    written = files.check()
    times.check()
    over = parse_link(link)
    if compare is not None and (files != LivenessFiles() or export.export is not None or config is not None):
        raise WorkloadError("--compare prints two steps side by side: write the files of each on its own")
    source = _source(target, config, options, times, export, compiled=compiled, quiet=out.quiet)
    written += source.written
    first = _study(source, over, mode, device)
    if compare is not None and target is not None:
        other, theirs = _other(target, compare, options)
        second = _study(source_of(other, theirs, times, compiled=compiled, quiet=out.quiet), over, mode, device)
        _show_both(first, second, out)
        return
    with progress(out.quiet) as say:
        say("writing")
        written += [*_write(first, files), *source.export(export)]
    if not any(map(is_stdout, written)):
        _show(first, source.capacity_bytes, written, top, out)


def _source(
    target: str | None,
    config: Path | None,
    options: CaptureOptions,
    times: TimeOptions,
    export: ExportOptions,
    *,
    compiled: bool,
    quiet: bool,
) -> Source:
    """The step of the target, or of what the configuration file says, which is done."""
    if target is not None and config is None:
        return source_of(target, options, times, compiled=compiled, quiet=quiet)
    if target is not None or config is None:
        raise WorkloadError("give a target, or --config FILE, and not both")
    if compiled or (options, export.export) != (CaptureOptions(), None):
        raise WorkloadError("--config says what is read and where files go: leave out what goes with a target")
    return source_of_config(config, times, export, quiet=quiet)


def _study(source: Source, link: Link, mode: Mode | None, device: str | None) -> LivenessStudy:
    graph = source.trace.graph
    ns = source.times.durations(graph, source.told).ns
    return study(graph, ns, durations=source.told, link=link, mode=mode or source.mode, device=device)


def _other(target: str, text: str, options: CaptureOptions) -> tuple[str, CaptureOptions]:
    """The target that ``text`` names and its options; or ``target`` at the settings that ``text`` lists."""
    if "=" not in text or Path(text).exists():
        return text, CaptureOptions() if isinstance(resolve(text), File) else options
    return target, replace(options, set=(*options.set, *(part.strip() for part in text.split(","))))


def _write(made: LivenessStudy, files: LivenessFiles) -> list[Path]:
    """Write what was asked for; the figures among it."""
    from tensortide.reports.build import former_report as report
    from tensortide.reports.html import render_html
    from tensortide.reports.liveness.figures import draw_all, overview_figure
    from tensortide.reports.liveness.sheet import sheet
    from tensortide.reports.trace import render_trace

    if files.csv is not None:
        write_file(files.csv, sheet(made))
    if files.html is not None or files.trace is not None:
        document = with_liveness(report(made.idle.graph, resolver=resolver), made.view)
        if files.html is not None:
            write_file(files.html, render_html(document), folders=True)
        if files.trace is not None:
            write_file(files.trace, render_trace(document, made))
    if files.plot is not None:
        overview_figure(made, files.plot)
    return [] if files.figures is None else draw_all(made, files.figures)


def _show(made: LivenessStudy, capacity_bytes: int | None, written: list[Path], top: int, out: OutputOptions) -> None:
    if out.json:
        print_json(made.view)
        return
    from tensortide.reports.liveness.terminal import render_liveness

    screen = console()
    render_liveness(made.view, screen, top=top)
    if capacity_bytes is not None:
        share = format_percent(made.view.peak.live_bytes, capacity_bytes)
        screen.print(f"\nThe peak is {share} of the {format_bytes(capacity_bytes)} that the device has.")
    if not out.quiet:
        for path in written:
            screen.print(f"wrote {path}", soft_wrap=True)


def _show_both(first: LivenessStudy, second: LivenessStudy, out: OutputOptions) -> None:
    if out.json:
        print_json({"a": first.view, "b": second.view})
        return
    from tensortide.reports.liveness.compare import render_comparison

    render_comparison(first.view, second.view, console())
