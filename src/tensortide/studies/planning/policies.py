"""G10's policies beside our plan, as ``tensortide plan TRACE --policies`` asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from tensortide.errors import RequestError
from tensortide.importers.door import File, resolve
from tensortide.importers.g10.results import Profile, profile_of
from tensortide.plans.remat.schedule import Recording
from tensortide.replays.g10.machine import AUTHORS, machine_of, trace_of
from tensortide.studies.planning.g10_comparison import Compared, compare_policies
from tensortide.targets.machines import device_in
from tensortide.timing.clusters import ClusterDevice

if TYPE_CHECKING:
    from tensortide.plans.under_budget.search import Watch
    from tensortide.studies.planning.request import PlanRequest


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
    machine = machine_of(device_of(asked, budget_bytes))
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


def device_of(asked: PlanRequest, budget_bytes: int | None) -> ClusterDevice:
    """The machine of G10's authors with the tiers of the cluster file that is given, or with the links and capacities
    that are given for the tiers to offload to: the host has no room if it is none of them. Raises RequestError for
    both."""
    machine = asked.step.capture.machine
    device = None if machine is None else device_in(machine)
    if device is not None and device.tiers:
        if asked.planner.tiers.offload:
            raise RequestError(f"--policies play with the tiers of {machine}: leave out --offload")
        return msgspec.structs.replace(device, capacity_bytes=budget_bytes)
    given = {link.name: link for link in asked.planner.tiers.links}
    if given and "host" not in given:
        given["host"] = replace(AUTHORS.tiers[0].link, capacity_bytes=0)
    tiers = tuple(tier._replace(link=given.get(tier.link.name, tier.link)) for tier in AUTHORS.tiers)
    return msgspec.structs.replace(AUTHORS, capacity_bytes=budget_bytes, tiers=tiers)
