"""The machine at hand, measured once: the rates by which its times are predicted."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tensortide.progress import Say, silent
from tensortide.targets.requests import ClockRequest, MeasuredOn
from tensortide.timing.calibration import Calibration

LOG = logging.getLogger("tensortide")


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(ClockRequest):
    """Measure the constants of this machine."""

    device: MeasuredOn = "cpu"


def answer(asked: CalibrateRequest, say: Say = silent) -> tuple[Calibration, Path]:
    """Measure this machine and store its constants: the calibration and its file. Steps that are done when it is
    interrupted are kept.

    Raises:
        CaptureError: the device is not here, the clock cannot see its work, or another process calibrates the device.
        OutputError: the store cannot be written.
    """
    from tensortide.profile.calibration.run import calibrate

    try:
        return calibrate(**asked.conditions(asked.device), progress=say, note=LOG.info)
    except KeyboardInterrupt:
        LOG.info("steps that were measured are kept: the same command goes on with the others")
        raise
