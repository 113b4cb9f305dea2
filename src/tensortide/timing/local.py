"""The machine at hand as a device: calibrated constants where it was calibrated, else a guess that says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tensortide.dtypes import DTYPES
from tensortide.errors import GraphFileError, TensortideError
from tensortide.timing.calibration import SUFFIX, Calibration, Rates, load, path_for
from tensortide.timing.catalogue import Device, device
from tensortide.timing.durations import Platform
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import VIEW
from tensortide.timing.intervals import WIDE
from tensortide.timing.models.saturating import Saturating
from tensortide.timing.prediction import VIEW_NS, Prediction, bound_of, clipped, half
from tensortide.timing.rates import Columns
from tensortide.timing.store import paths_of, software_of, told
from tensortide.timing.work import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NAME = "local"
"""Name of the machine at hand where a device is asked for."""
COMMAND = "tensortide time calibrate"
"""What measures it."""

_CORE = Rates(flops_per_s={"float32": 1e11}, bytes_per_s=1e10)
"""Rates of a core that nobody has measured: about those of a server's of the years from 2018."""


class Local(Device, frozen=True, kw_only=True):
    """A machine with its calibration. ``same``: it runs the software and the threads that it was calibrated with."""

    calibration: Calibration
    same: bool = True


class Assumed(Device, frozen=True, kw_only=True):
    """A CPU that nobody has measured, at the rates of ``threads`` cores of the kind that servers have."""

    threads: int


def local(machine: Platform, store: Path | None = None) -> tuple[Device, tuple[str, ...]]:
    """The device of ``machine``, and warnings.

    It is Local by the calibration of this device, software and number of threads, else by the newest of this device; a
    damaged file is not used. Uncalibrated, it is the device of the catalogue, or a CPU is Assumed.

    Raises TensortideError for a GPU that is neither calibrated nor in the catalogue.
    """
    warnings: list[str] = []
    own = path_for(machine, store)
    for path in sorted(paths_of(machine.name, SUFFIX, store), key=lambda path: path != own):
        try:
            stored = load(path)
        except GraphFileError as error:
            warnings.append(f"{error}. It is not used.")
            continue
        found = stored.calibration
        if path == own and stored.underway is not None:
            count = len(stored.underway.chunks)
            warnings.append(
                f"a calibration of {machine.name} is not complete ({count} step{'s' * (count != 1)} measured), so it "
                f"is not used yet. Go on with it: {_command(machine)}"
            )
        if found is not None and found.machine.name == machine.name:
            same = software_of(found.machine) == software_of(machine)
            if not same:
                warnings.append(
                    f"{machine.name} was calibrated with {told(found.machine)}, and this is {told(machine)}: intervals "
                    "are a factor of 2. Calibrate this too: tensortide time calibrate"
                )
            return of(found, same=same), tuple(warnings)
    guess = _uncalibrated(machine)
    how = f"assumed for {_threads(guess.threads)}" if isinstance(guess, Assumed) else "by the catalogue"
    warnings.append(
        f"{machine.name} is not calibrated: {guess.fp32_tflops or 0:g} TFLOP/s in fp32 and "
        f"{guess.memory_gbytes_per_s:g} GB/s are {how}, so times may be off by a factor of 2 or more. Measure "
        f"it once, in under five minutes: {_command(machine)}"
    )
    return guess, tuple(warnings)


def of(found: Calibration, *, same: bool = True) -> Local:
    """The device that ``found`` calibrates."""
    plain = device_of(found.machine, found.rates, found.cache_bytes)
    return Local(**msgspec.structs.asdict(plain), calibration=found, same=same)


def device_of(machine: Platform, rates: Rates, cache_bytes: int | None = None) -> Device:
    """``machine`` as a device with measured ``rates``; what is not measured is as the catalogue has it."""
    row = _row(machine) or Device(name=machine.name, memory_gbytes_per_s=1.0)
    measured = {DTYPES[dtype].rate: rate / 1e12 for dtype, rate in rates.flops_per_s.items() if dtype in DTYPES}
    links = {"host to device": "pcie_gbytes_per_s", "device to device": "intra_link_gbytes_per_s"}
    measured |= {links[name]: rate / 1e9 for name, rate in rates.links.items() if name in links}
    changed = {
        "name": machine.name,
        "kind": "cpu" if machine.device == "cpu" else "gpu",
        "arch": "",  # by its measured figures it is in no order with the devices of its architecture
        "memory_gbytes_per_s": rates.bytes_per_s / 1e9,
        "l2_mbytes": cache_bytes / 1e6 if cache_bytes else row.l2_mbytes,
        "tdp_watts": None,  # the clock that it holds is part of the rates
    }
    return msgspec.structs.replace(row, **changed, **measured)


def calibrated_ns(table: Columns) -> Floats:
    """Nanoseconds of works on a Local device by the constants of their families, clipped by the measured ceilings."""
    import numpy as np

    assert isinstance(table.device, Local)
    model = table.device.calibration.model
    reached = np.array([model.constants(family).compute for family in table.families])
    return clipped(model.ns(table), table, reached)  # by kernels of another library than large products


def with_host(works: Sequence[Work], table: Columns, times: Floats) -> list[Prediction]:
    """The predictions of ``works`` on a Local device that take ``times``, with its intervals and the host's work."""
    found = table.device
    assert isinstance(found, Local)
    calibration = found.calibration
    refills = calibration.refills * calibration.model.sequel.refills(table)
    host = calibration.between_ns + calibration.overhead * times + refills if found.kind == "cpu" else 0 * times
    numbers = zip(*(column.tolist() for column in (times, host, table.compute_ns, table.memory_ns)), strict=True)
    return [_prediction(work, found, *row) for work, row in zip(works, numbers, strict=True)]


def _prediction(work: Work, found: Local, ns: float, host_ns: float, compute: float, memory: float) -> Prediction:
    if work.family == VIEW:
        return _view(work, found, ns, host_ns)
    known = work.known and compute == compute  # NaN: a dtype whose rate is not known
    provenance = _provenance(work, found, compute, memory) if known else Provenance.UNKNOWN
    pool = found.calibration.pool(work.family, provenance) if found.same else WIDE
    bound = bound_of(compute, memory, ns)
    return Prediction(work, ns, *half(pool, ns), provenance, f"calibrated:{work.family}", bound, host_ns)


def _view(work: Work, found: Local, ns: float, host_ns: float) -> Prediction:
    """A view takes the host what it was measured to, if it was: on an accelerator it launches nothing."""
    kind = _provenance(work, found, 0.0, 0.0)
    if VIEW not in found.calibration.model.families:
        ns, kind = VIEW_NS, Provenance.EXTRAPOLATED
    return Prediction(work, ns, *half(found.calibration.pool(VIEW, kind), ns), kind, "views", "views", host_ns)


def _provenance(work: Work, found: Local, compute: float, memory: float) -> Provenance:
    known = calibrated(found.calibration.model, work, found, compute, memory)
    return Provenance.CALIBRATED if known and found.same else Provenance.EXTRAPOLATED


def calibrated(model: Saturating, work: Work, on: Device, compute: float, memory: float) -> bool:
    """Tell whether ``work`` lies among the samples of its family in ``model``, and they identify the constant that it
    rests on: ``compute`` and ``memory`` are the least times of its arithmetic and of its bytes."""
    constants = model.families.get(work.family)
    if work.family == VIEW or constants is None:
        return constants is not None
    return constants.domain.covers(work, on) and constants.sure(compute, memory)


def _row(machine: Platform) -> Device | None:
    try:
        return device(machine.name)
    except TensortideError:  # the catalogue does not know every device
        return None


def _uncalibrated(machine: Platform) -> Device:
    row = _row(machine)
    if row is not None and row.fp32_tflops:
        return row
    if machine.device != "cpu":
        raise TensortideError(
            f"{machine.name} is neither in the catalogue nor calibrated. Measure it once, in under five minutes: "
            f"{_command(machine)}"
        )
    cores = machine.threads or 1
    rates = Rates(flops_per_s={"float32": cores * _CORE.flops_per_s["float32"]}, bytes_per_s=cores * _CORE.bytes_per_s)
    return Assumed(**msgspec.structs.asdict(device_of(machine, rates)), threads=cores)


def _command(machine: Platform) -> str:
    return COMMAND + (f" --device {machine.device}" if machine.device != "cpu" else "")


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"
