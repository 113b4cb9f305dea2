"""``tensortide scale``: a training step on many devices: one configuration, or the fastest of all."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter
from msgspec import structs

from tensortide.cli.interrupt import counted
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, graph_of, machines_of, option, progress
from tensortide.errors import DegreesError, WorkloadError
from tensortide.parallelism.closed.configuration import Configuration, Recompute, Schedule, no_experts
from tensortide.timelines.machines import PER_NODE, split
from tensortide.timing import DEFAULT
from tensortide.units import parse_bytes

if TYPE_CHECKING:
    from tensortide.studies.scale import Captured, ClosedForm, Predictor, Request
    from tensortide.timing.collectives import Cluster


Searched: TypeAlias = int | Literal["search"]
"""A degree that is 1 unless it is given or searched."""


def _degree(name: str, text: str) -> Parameter:
    return option(f"--{name}", f"{text} (default: searched).")


@Parameter(name="*")
@dataclass(frozen=True)
class DegreeOptions:
    """Degrees of parallelism; those that are not given are searched."""

    data: Annotated[int | None, _degree("data", "Replicas, each with a part of the batch")] = None
    tensor: Annotated[int | None, _degree("tensor", "Ranks that divide every layer")] = None
    pipeline: Annotated[int | None, _degree("pipeline", "Ranks that have some layers each")] = None
    micro_batch: Annotated[int | None, _degree("micro-batch", "Samples that a replica computes at a time")] = None
    chunks: Annotated[int | None, _degree("chunks", "Parts of a pipeline rank (interleaved)")] = None
    context: Annotated[Searched, option("--context", "Ranks that divide the sequence: a number, or search.")] = 1
    expert: Annotated[Searched, option("--expert", "Ranks that divide the experts: a number, or search.")] = 1


@Parameter(name="*")
@dataclass(frozen=True)
class StrategyOptions:
    """Further choices that a step on many devices depends on."""

    zero: Annotated[
        int, option("--zero", "Shard over replicas: 1 optimizer state, 2 gradients too, 3 parameters too.")
    ] = 0
    recompute: Annotated[
        Recompute | None,
        option(
            "--recompute",
            "What is computed again in the backward pass: none, selective (attention) or full (default: full with "
            "--model, else none).",
        ),
    ] = None
    schedule: Annotated[Schedule, option("--schedule", "Schedule of the pipeline: gpipe, 1f1b or interleaved.")] = (
        "1f1b"
    )
    sequence: Annotated[
        bool, option("--sequence", "Divide along the sequence what a tensor group does not divide otherwise.")
    ] = False
    fused_attention: Annotated[
        bool, option("--fused-attention", "Attention without scores in memory (closed form).")
    ] = False
    overlap: Annotated[
        bool, option("--overlap", "Communication runs beside compute: gradients, tensor collectives, transfers.")
    ] = False

    def configuration(self, batch: int, degrees: DegreeOptions, dtype: str, *, captured: bool) -> Configuration:
        """The part of a configuration that is not searched."""
        return Configuration(
            batch=batch,
            context=1 if degrees.context == "search" else degrees.context,
            expert=1 if degrees.expert == "search" else degrees.expert,
            schedule=self.schedule,
            zero=self.zero,
            recompute=self.recompute or ("none" if captured else "full"),
            sequence=self.sequence,
            fused_attention=self.fused_attention,
            causal_half=self.fused_attention,
            overlap_data=self.overlap,
            overlap_tensor=self.overlap,
            overlap_pipeline=self.overlap,
            dtype=dtype,
        )


def scale(
    target: Annotated[str, option("", f"{TARGET}.")] = "",
    /,
    *,
    model: Annotated[
        str | None,
        option("--model", "A transformer in place of a target: layers=96,hidden=12288,heads=96,seq=2048,vocab=51200."),
    ] = None,
    devices: Annotated[
        int | None, option("--devices", "Devices of the machine, in nodes of 8 (default: as --machine says).")
    ] = None,
    batch: Annotated[
        int | None, option("--batch", "Samples of a step of all devices (default: the batch of the target).")
    ] = None,
    dtype: Annotated[str, option("--dtype", "Type of the products, with --model.")] = "bfloat16",
    memory: Annotated[
        str | None, option("--memory", "Bytes that a device has for the step, as 70GiB (default: what it has).")
    ] = None,
    price: Annotated[float | None, option("--price", "Price of a device for an hour, to show that of tokens.")] = None,
    degrees: DegreeOptions = DegreeOptions(),
    strategy: StrategyOptions = StrategyOptions(),
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Predict a step on many devices: the given degrees, or the fastest of all, with time, memory and cost.

    What cannot run is listed with the reason. Strong and weak scaling show more and fewer replicas of the best.
    Ctrl-C ends the search and shows what is known.
    """
    from tensortide.reports.sections.scale import document
    from tensortide.studies.scale import scale as study

    files.check()
    if bool(target) == (model is not None):
        raise WorkloadError("scale takes a target, or a transformer: --model layers=96,hidden=12288,heads=96")
    where = _cluster(options, devices)
    # Mistakes are errors before anything is captured; only then is the batch of a target known.
    base = strategy.configuration(1 if batch is None else batch, degrees, dtype, captured=model is None)
    request = _request(where, base, degrees, memory, price)
    if model is not None:
        predictor: Predictor = _closed_form(model, base, options)
        if batch is None:
            raise WorkloadError("--model needs the samples of a step of all devices: --batch 1536")
    else:
        predictor = captured = _captured(target, where, base, options, out)
        if batch is None:
            request = structs.replace(request, base=structs.replace(base, batch=captured.batch))
    with progress(out.quiet) as say, counted() as requests:
        found = study(request, predictor, lambda text: say(f"{text}; Ctrl-C to stop here"), lambda: bool(requests))
    made = document(found)
    show(made, out, wrote=files.write(made, table="configurations" if len(found.legal) > 1 else "parts"))
    if found.best is None:
        raise SystemExit(1)


def _machine(options: CaptureOptions) -> str:
    """The machine as it was asked for, number of devices included."""
    if len(options.machines) > 1:
        raise WorkloadError("scale takes one --machine")
    return options.machines[0] if options.machines else DEFAULT


def _cluster(options: CaptureOptions, devices: int | None) -> Cluster:
    from tensortide.timing.collectives import cluster

    found = machines_of(_machine(options))
    if devices is None:
        return found.cluster
    if devices < 1:
        raise WorkloadError(f"--devices {devices}: a step runs on at least 1")
    per = found.per_node if found.size > 1 else min(PER_NODE, devices)
    if devices % per:
        raise WorkloadError(f"--devices {devices}: devices / node = {devices}/{per} is no whole number")
    return cluster(found.device, devices_per_node=per, nodes=devices // per)


def _closed_form(model: str, base: Configuration, options: CaptureOptions) -> ClosedForm:
    """The transformer. Raises WorkloadError for options of a capture, DegreesError for experts that it lacks."""
    from tensortide.parallelism.closed import transformer
    from tensortide.studies.scale import ClosedForm

    others = [field for field in fields(options) if field.name not in ("machines", "compare", "reading")]
    given = [field.name for field in others if getattr(options, field.name) != field.default]
    for name in (*given, *options.reading.given()):
        raise WorkloadError(f"--{name.replace('_', '-')} goes with a target: --model captures nothing")
    shape = transformer(model)
    if missing := no_experts(base, shape):
        raise DegreesError(missing)
    return ClosedForm(shape)


def _captured(
    target: str, where: Cluster, base: Configuration, options: CaptureOptions, out: OutputOptions
) -> Captured:
    """The captured target. Raises DegreesError for what only the closed form knows."""
    from tensortide.graph import unrolled
    from tensortide.recorder import resolver
    from tensortide.studies.scale import Captured
    from tensortide.studies.scale.captured import only_of_models, samples_of, tokens_of

    if wrong := only_of_models(base):
        raise DegreesError("; ".join(wrong))
    name = split(_machine(options))[1]
    graph = unrolled(graph_of(target, replace(options, machines=(name,)), quiet=out.quiet))
    return Captured(graph, where.device, batch=samples_of(graph), tokens=tokens_of(graph), resolver=resolver)


def _request(
    where: Cluster, base: Configuration, degrees: DegreeOptions, memory: str | None, price: float | None
) -> Request:
    from tensortide.studies.scale import Request

    limit = parse_bytes(memory) if memory is not None else where.device.usable_bytes
    if price is not None and price < 0:
        raise WorkloadError(f"--price {price}: a price is no less than 0")
    return Request(
        cluster=where,
        base=base,
        data=degrees.data,
        tensor=degrees.tensor,
        pipeline=degrees.pipeline,
        micro_batch=degrees.micro_batch,
        chunks=degrees.chunks,
        every_context=degrees.context == "search",
        every_expert=degrees.expert == "search",
        memory_bytes=limit,
        price_per_hour=price,
    )
