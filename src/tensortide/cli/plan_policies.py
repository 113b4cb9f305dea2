"""``tensortide plan TRACE --policies``: G10's policies beside our plan on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensortide.cli.show import show
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.units import parse_bytes

if TYPE_CHECKING:
    from tensortide.cli.plan import PlanOptions, PlanRun
    from tensortide.replays.g10 import Machine


def compare(
    target: str, budget: str | None, policies: str, asked: PlanRun, *, compat: bool, others: Mapping[str, object]
) -> None:
    """Compare ``policies`` on the machine of G10's authors, or with the links and the budget that are asked for.

    ``others``: further options by name, which a comparison does not take. Exits with 1 if no plan of ours was found;
    raises WorkloadError if one of them is given.
    """
    _refuse(asked.search, others)
    from tensortide.importers.g10.profile import Profile, profile_of
    from tensortide.replays.g10 import chosen, trace_of
    from tensortide.reports.sections.policies import document
    from tensortide.studies.planning.g10_comparison import compare_policies
    from tensortide.studies.remat.budgets import one_budget
    from tensortide.timelines import timeline

    names = chosen(policies)
    recording = asked.recording(target)
    graph, found = recording.graph, resolve(target)
    profile = profile_of(found.path) if isinstance(found, File) else Profile()
    trace = trace_of(
        graph,
        recording.durations_ns,
        outputs_absent_ns=profile.outputs_absent_ns,
        all_absent_ns=profile.all_absent_ns,
    )
    machine = _machine(asked.search)
    if budget is not None:
        device = graph.index.device(asked.options.device or "")
        peak = timeline(graph, lifetimes="last_use", device=device).peak_bytes
        nbytes = one_budget(budget, "tensortide plan frontier").bytes_of(peak)
        machine = _with(machine, device_bytes=nbytes)
    with asked.given(graph, policies=True) as given:
        compared = compare_policies(
            recording,
            trace,
            machine,
            names,
            compat=compat,
            recompute=given["recompute"],
            device=given["device"],
            effort=given["effort"],
            time_limit_s=given["time_limit_s"],
            work_limit=given["work_limit"],
            watch=given["watch"],
        )
    made = document(compared, graph.meta.workload, source=recording.source)
    show(made, asked.out, wrote=asked.files.write(made, table="policies"))
    if compared.planned is None:
        raise SystemExit(1)


def _refuse(search: PlanOptions, others: Mapping[str, object]) -> None:
    """Raise WorkloadError for the first option that a comparison would ignore."""
    ignored = {
        **others,
        "--order free": search.order == "free",
        "--pin": search.pin,
        "--against": search.against,
        "--keep-random": search.keep_random,
        "--ssd-memory": search.ssd_memory,
    }
    for name, value in ignored.items():
        if value:
            raise WorkloadError(f"{name} does not go with --policies, which compares on a machine of its own")


def _machine(search: PlanOptions) -> Machine:
    """The machine of G10's authors, with the links and capacities that are given for the tiers to offload to."""
    from tensortide.replays.g10 import Machine

    machine = Machine()
    for link in search.links():
        if link.name == "host":
            machine = _with(machine, wire=int(link.bytes_per_s), host_latency_ns=link.latency_ns)
        else:
            machine = _with(machine, drive=int(link.bytes_per_s), drive_latency_ns=link.latency_ns)
    return machine if search.host_memory is None else _with(machine, host_bytes=parse_bytes(search.host_memory))


def _with(machine: Machine, **changes: int) -> Machine:
    import msgspec

    return msgspec.structs.replace(machine, **changes)
