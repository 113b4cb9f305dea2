"""A memory limit as people write it."""

from __future__ import annotations

import os
import re

import torch

from tensortide.errors import RunError, TensortideError
from tensortide.units import parse_bytes

_MARGIN = 0.1
"""Share of the free memory that ``auto`` leaves alone."""


def budget_bytes(limit: int | str, device: torch.device) -> int:
    """Bytes of ``limit``: a number of bytes, a size, a percentage of the memory of ``device``, or ``auto``.

    Raises RunError for anything else.
    """
    if isinstance(limit, bool) or (isinstance(limit, int) and limit <= 0):
        raise RunError(f"a budget of {limit} is no number of bytes above 0")
    if isinstance(limit, int):
        return limit
    text = limit.strip()
    if text == "auto":
        free, _ = _memory(device)
        return int(free * (1 - _MARGIN))
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text)
    if share:
        percent = float(share.group(1))
        if not 0 < percent <= 100:
            raise RunError(f"a budget of {limit!r} is no share of the device's memory")
        return int(_memory(device)[1] * percent / 100)
    try:
        return budget_bytes(parse_bytes(text), device)
    except TensortideError as error:
        raise RunError(f"{limit!r} is no budget: give bytes, a size such as '8GiB', '60%' or 'auto'") from error


def default_device() -> torch.device:
    """The current GPU, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of ``device``, or of this machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)
    pages = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * pages, os.sysconf("SC_PHYS_PAGES") * pages
