"""Settings of PyTorch's allocator for GPUs, as ``PYTORCH_ALLOC_CONF`` and the program give them: those that the replay
of the allocator has, and those that it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

MIB = 1 << 20
_INTERVALS = 16
"""Sizes from 1 MiB to 64 GiB, by powers of two."""


@dataclass(frozen=True, kw_only=True)
class AllocatorSettings:
    """Settings that the replay has, in bytes.

    Blocks of ``max_split`` bytes and more are not split: they serve requests that are as large, and at most
    ``max_rounding`` bytes smaller than the block. ``divisions`` say for each power of two from 1 MiB on into how many
    parts it is divided, to which requests are rounded up.
    """

    expandable: bool = False
    large_segment: int = 20 * MIB
    max_split: int | None = None
    max_rounding: int = 20 * MIB
    divisions: tuple[int, ...] = (0,) * _INTERVALS


DEFAULTS = AllocatorSettings()


@dataclass(frozen=True)
class _Setting:
    """A row of the table: the ``field`` that ``read`` makes of its text, and PyTorch's ``default``. A setting without
    a field is ``harmless`` if no bytes of the device depend on it, else it is not modelled."""

    field: str = ""
    read: Callable[[str, str], Any] = lambda key, text: text
    default: str = ""
    harmless: bool = False


def _flag(key: str, text: str) -> bool:
    del key
    if text not in ("True", "False"):
        raise ValueError(f"Expected 'True' or 'False' but got {text!r}")
    return text == "True"


def _mib(key: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{key} takes a number of MiB, not {text!r}")
    return int(text) * MIB


def _divisions(key: str, text: str) -> tuple[int, ...]:
    """Divisions of each interval: one number for all, or ``[256:1,512:2,>:4]``: that of an interval begins at its key,
    the first one goes for smaller sizes, too, and ``>`` for those after the last key."""
    del key
    if not text.startswith("["):
        return (_power_of_two(text),) * _INTERVALS
    found, last = [0] * _INTERVALS, -1
    for boundary, _, number in (pair.partition(":") for pair in text.strip("[]").split(",")):
        value = 0 if number == "0" else _power_of_two(number)
        if boundary == ">":
            found[last + 1 :] = [value] * (_INTERVALS - last - 1)
            continue
        at = min(_power_of_two(boundary).bit_length() - 1, _INTERVALS - 1)
        found[(0 if last < 0 else at) : at + 1] = [value] * (at + 1 if last < 0 else 1)
        last = at
    return tuple(found)


def _power_of_two(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number.bit_count() != 1:
        raise ValueError(f"For roundups, the divisions and intervals have to be powers of 2, not {text!r}")
    return number


def _backend(key: str, text: str) -> str:
    del key
    if text not in ("native", ASYNC):
        raise ValueError(f"Unknown allocator backend {text!r}, options are native and {ASYNC}")
    return text


ASYNC = "cudaMallocAsync"
"""The driver's allocator: it ignores the settings of PyTorch's own."""
SETTINGS: dict[str, _Setting] = {
    "expandable_segments": _Setting("expandable", _flag),
    "large_segment_size_mb": _Setting("large_segment", _mib),
    "max_split_size_mb": _Setting("max_split", _mib),
    "max_non_split_rounding_mb": _Setting("max_rounding", _mib),
    "roundup_power2_divisions": _Setting("divisions", _divisions),
    "backend": _Setting(read=_backend, default="native"),
    **dict.fromkeys(("garbage_collection_threshold", "per_process_memory_fraction"), _Setting()),
    "graph_capture_record_stream_reuse": _Setting(read=_flag, default="False"),
    **dict.fromkeys(
        (
            *("release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "throw_on_cudamalloc_oom"),
            *("expandable_segments_reserve", "pinned_use_cuda_host_register", "pinned_use_hip_host_register"),
            *("pinned_num_register_threads", "pinned_use_background_threads", "pinned_reserve_segment_size_mb"),
            *("pinned_max_round_threshold_mb", "pinned_max_cached_size_mb", "pinned_free_catch_all"),
        ),
        _Setting(harmless=True),
    ),
}
"""The settings of PyTorch 2.13 and the version after it. Pinned memory is the host's."""


def read_settings(text: str) -> tuple[AllocatorSettings, tuple[str, ...], tuple[str, ...]]:
    """Settings of the replay, the parts of ``text`` that they follow from, and those that are not modelled.

    Raises ValueError for what PyTorch does not accept.
    """
    found, own, others = DEFAULTS, [], []
    pairs = dict(pair.partition(":")[::2] for pair in re.split(r",(?![^\[]*\])", "".join(text.split())) if pair)
    for key, value in pairs.items():
        row = SETTINGS.get(key)
        if row is None:
            raise ValueError(f"Unrecognized key {key!r} in CUDA allocator config")
        made = row.read(key, value)
        if row.field and pairs.get("backend") != ASYNC:
            if getattr(found, row.field) != made:
                own.append(f"{key}:{value}")
            found = replace(found, **{row.field: made})
        elif not row.field and not row.harmless and value != row.default:
            others.append(f"{key}:{value}")
    for key, least in (("max_split_size_mb", found.max_split), ("max_non_split_rounding_mb", found.max_rounding)):
        if key in pairs and least is not None and least < found.large_segment:
            at_least = found.large_segment // MIB
            raise ValueError(f"CachingAllocator option {key} too small, must be >= {at_least}")
    return found, tuple(own), tuple(others)
