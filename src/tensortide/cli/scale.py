"""``tensortide scale``: a training step on many devices, in one configuration or the fastest of all."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators
from msgspec import structs

from tensortide.cli.interrupt import end_requests, postponed
from tensortide.cli.numbers import Real
from tensortide.cli.scale_options import DTYPE, DegreeOptions, StrategyOptions
from tensortide.cli.scale_run import runnable, with_run
from tensortide.cli.search import searching
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, graph_of, machines_of, option
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import DegreesError, WorkloadError
from tensortide.parallelism.closed.configuration import Configuration, no_experts
from tensortide.timelines.machines import PER_NODE, split
from tensortide.timing import DEFAULT_DEVICE
from tensortide.units import parse_bytes

if TYPE_CHECKING:
    from tensortide.plans import Plan
    from tensortide.studies.scale import Captured, ClosedForm, Predictor, Request
    from tensortide.timing.collectives import Cluster


def scale(
    target: Annotated[str, option("", f"{TARGET}.")] = "",
    /,
    *,
    model: Annotated[
        str | None,
        option("--model", "A transformer in place of a target: layers=96,hidden=12288,heads=96,seq=2048,vocab=51200."),
    ] = None,
    devices: Annotated[
        int | None, option("--devices", "Number of devices, in nodes of 8 (default: that of --machine).")
    ] = None,
    batch: Annotated[
        int | None,
        option("--batch", "Global batch, in samples (default: the batch of the target)."),
    ] = None,
    dtype: Annotated[str | None, option("--dtype", "Type of the products, with --model (default: bfloat16).")] = None,
    memory: Annotated[
        str | None, option("--memory", "Memory of a device for the step, such as 70GiB (default: its usable memory).")
    ] = None,
    price: Annotated[
        float | None,
        option("--price", "Price of a device-hour, from which that of tokens follows."),
        Parameter(validator=Real(above=0)),
    ] = None,
    steps: Annotated[
        int | None,
        Parameter(
            name="--run",
            help="Also run the fastest configuration for this many steps, with a process on this machine per device.",
            show_default=False,
            validator=validators.Number(gte=1),
        ),
    ] = None,
    degrees: DegreeOptions = DegreeOptions(),  # noqa: B008
    strategy: StrategyOptions = StrategyOptions(),  # noqa: B008
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Predict a step on many devices, with the given degrees or the fastest ones: time, memory and cost.

    Configurations that cannot run are listed with the reason; exits with 1 if none can, or if a run (--run) differs
    from one process. Tables of strong and weak scaling show the best one with more and fewer replicas. Configurations
    of a captured step are evaluated on all cores (--threads) or on a Ray cluster (--cluster); Ctrl-C ends the search
    and shows the results so far.
    """
    from tensortide.reports.sections.scale import document
    from tensortide.studies.scale import scale as study

    files.check()
    if bool(target) == (model is not None):
        raise WorkloadError("scale takes a target, or a transformer: --model layers=96,hidden=12288,heads=96")
    if model is None and dtype is not None:
        raise WorkloadError(
            f"--dtype {dtype} goes with --model: a captured step has the dtypes of its tensors, so capture it under "
            "torch.autocast, or with parameters of that type"
        )
    where = _cluster(options, devices)
    if steps is not None:
        degrees = runnable(target, where.size, batch, degrees, strategy)
    # Mistakes are errors before anything is captured; only then is the batch of a target known.
    base = strategy.configuration(1 if batch is None else batch, degrees, dtype or DTYPE, captured=model is None)
    request = _request(where, base, degrees, memory, price)
    if model is not None:
        predictor: Predictor = _closed_form(model, base, options)
        if batch is None:
            raise WorkloadError("--model needs the samples of a step of all devices: --batch 1536")
    else:
        predictor = captured = _captured(target, where, base, options, out, strategy.plan())
        if batch is None:
            request = structs.replace(request, base=structs.replace(base, batch=captured.batch))
    with searching(out.quiet) as search:
        found = study(request, predictor, search.known, search.stopped, workers.where)
    made, verified = document(found), True
    with postponed() as interrupts:
        if steps is not None and found.best is not None:
            end_requests()
            made, verified = with_run(made, found, target, options, steps)
    show(made, out, wrote=files.write(made, table="configurations" if len(found.legal) > 1 else "parts"))
    for interrupt in interrupts:
        raise interrupt
    if found.best is None or not verified:
        raise SystemExit(1)


def _machine(options: CaptureOptions) -> str:
    """The machine as it was asked for, number of devices included."""
    if len(options.machines) > 1:
        raise WorkloadError("scale takes one --machine")
    return options.machines[0] if options.machines else DEFAULT_DEVICE


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
    target: str,
    where: Cluster,
    base: Configuration,
    options: CaptureOptions,
    out: OutputOptions,
    plan: Plan | None,
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
    batch, tokens = samples_of(graph), tokens_of(graph)
    return Captured(graph, where.device, batch=batch, tokens=tokens, resolver=resolver, plan=plan)


def _request(
    where: Cluster, base: Configuration, degrees: DegreeOptions, memory: str | None, price: float | None
) -> Request:
    from tensortide.studies.scale import Request

    limit = parse_bytes(memory) if memory is not None else where.device.usable_bytes
    return Request(
        cluster=where,
        base=base,
        data=degrees.data,
        tensor=degrees.tensor,
        pipeline=degrees.pipeline,
        micro_batch=degrees.micro_batch,
        chunks=degrees.chunks,
        kv_group=degrees.kv_group,
        every_context=degrees.context == "search",
        every_expert=degrees.expert == "search",
        memory_bytes=limit,
        price_per_hour=price,
    )
