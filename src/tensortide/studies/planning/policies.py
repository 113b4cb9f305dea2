"""G10's policies beside our plan, as ``tensortide plan TRACE --policies`` asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tensortide.importers.door import File, resolve
from tensortide.importers.g10.profile import Profile, profile_of
from tensortide.plans.remat.schedule import Recording
from tensortide.replays.g10 import Machine, trace_of
from tensortide.studies.planning.g10_comparison import Compared, compare_policies

if TYPE_CHECKING:
    from tensortide.plans.under_budget.search import Watch
    from tensortide.studies.planning.request import PlannerRequest, PlanRequest


def compared(asked: PlanRequest, step: Recording, device: str, budget_bytes: int | None, watch: Watch) -> Compared:
    """The policies that are asked for on the machine of G10's authors, or with the links and the budget given."""
    found = resolve(asked.target)
    profile = profile_of(found.path) if isinstance(found, File) else Profile()
    trace = trace_of(
        step.graph,
        step.durations_ns,
        outputs_absent_ns=profile.outputs_absent_ns,
        all_absent_ns=profile.all_absent_ns,
    )
    machine = machine_of(asked.planner)
    if budget_bytes is not None:
        machine = msgspec.structs.replace(machine, device_bytes=budget_bytes)
    return compare_policies(
        step,
        trace,
        machine,
        asked.policies or (),
        compat=asked.compat_memory,
        device=device,
        watch=watch,
        **asked.planner.search,
    )


def machine_of(asked: PlannerRequest) -> Machine:
    """The machine of G10's authors, with the links and capacities that are given for the tiers to offload to."""
    changes: dict[str, int] = {}
    for link in asked.tiers.links:
        wire, latency = ("wire", "host_latency_ns") if link.name == "host" else ("drive", "drive_latency_ns")
        changes |= {wire: int(link.bytes_per_s), latency: link.latency_ns}
    if asked.tiers.host_memory is not None:
        changes["host_bytes"] = asked.tiers.host_memory
    return msgspec.structs.replace(Machine(), **changes)
