"""Section ``paleo``: a network as Paleo predicts it."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.reports.blocks import AnyBlock, Document, Fact, Facts, Note, Section, Value
from tensortide.reports.of_records import table
from tensortide.reports.pictures import Axis, Points, Scatter
from tensortide.studies.placement.paleo_net import PaleoLayer, PaleoNet, PaleoWorkers
from tensortide.timing.paleo.scaling import EXCHANGES
from tensortide.units import format_seconds

_MODEL = (
    "Times are those of the published model (docs/paleo.md), its faults included: not to be compared with predictions "
    "of other verbs."
)


def document(found: PaleoNet) -> Document:
    """Show ``found``."""
    asked = found.asked
    names = {"device": asked.device, "platform": asked.platform, "network": asked.network}
    settings: dict[str, Value] = {"batch": found.batch, **names}
    section = Section("paleo", "Paleo's prediction", blocks=tuple(_blocks(found)))
    return section.document(found.net.name or asked.net.stem, f"{len(found.net.entries)} layers", settings=settings)


def _blocks(found: PaleoNet) -> Iterator[AnyBlock]:
    if found.hybrid is not None:
        names = {"shared": "Layers that every worker has", "split": "Layers that are split", "exchange": "Exchange"}
        ms = {name: getattr(found.hybrid, name) for name in (*names, "update")}
        total, where = found.hybrid.total, f"on {found.hybrid.workers} workers"
    else:
        assert found.step is not None
        names = {"forward": "Forward", "backward": "Backward"}
        ms = {name: getattr(found.step, name) for name in (*names, "update")}
        total, where = found.step.total, f"on one {found.asked.device}"
    yield Note(text=f"{format_seconds(total / 1e3)} a step {where}.", kind="verdict")
    rows = [Fact("step_ns", "Step", round(total * 1e6), "ns")]
    labels = {**names, "update": "Update"}
    rows += [Fact(f"{name}_ns", labels[name], round(ms[name] * 1e6), "ns", level=1) for name in ms]
    rows.append(Fact("parameters", "Parameters", found.parameters, "count"))
    yield Facts(rows=tuple(rows))
    yield table(PaleoLayer, found.layers, key="layers", title="Layers", heads=1)
    if found.workers:
        title = f"Data-parallel steps, {found.asked.scaling} scaling"
        yield table(PaleoWorkers, found.workers, key="workers", title=title, heads=1)
        yield _scaling(found)
    yield Note(text=_MODEL, kind="assumption")


def _scaling(found: PaleoNet) -> Scatter:
    """Draw the speed-up with each exchange against the number of workers, beside one that loses nothing."""
    assert found.many is not None
    workers = tuple(row.workers for row in found.many.rows)
    lines = [Points("linear", workers, workers, joined="line")]
    lines += [Points(exchange, workers, found.many.speedups(exchange), joined="line") for exchange in EXCHANGES]
    return Scatter(
        key="speedup",
        title="Speed-up over one worker",
        x=Axis("workers", "count", log=True, ticks=workers),
        y=Axis("times as fast", "number", log=True),
        points=tuple(lines),
    )
