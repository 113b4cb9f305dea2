"""The device catalogue: what vendors and others say of GPUs, accelerators and CPUs. ``devices_sources.txt`` says who.

A catalogue value is a claim. Rates are dense, and of one device as a process sees it.
"""

from __future__ import annotations

import csv
import difflib
import functools
import importlib.resources
import logging
import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from tensortide.errors import TensortideError
from tensortide.shown import Show
from tensortide.timing.wiring import WIRINGS

LOG = logging.getLogger("tensortide")
Kind: TypeAlias = Literal["gpu", "accelerator", "cpu"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_MOST = 1e30
"""Figures are less than this, and more than one of it: times that rest on others overflow."""
_FIGURE = re.compile(r"\b(float|int)\b")
"""In the annotations of figures."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device. None and ``""`` are unknown.

    ``*_tflops`` and ``int8_tops`` are dense peaks in 1e12 per second: of the matrix units where the device has some,
    for ``fp32`` without them, ``tf32`` and ``fp32_matrix`` modes of their own. Memory is in 1e9 bytes,
    bandwidths are in 1e9 bytes per second, those of links in one direction. ``wiring`` is one of ``WIRINGS``: how the
    link of ``intra_link`` joins ``wired_devices`` of a node; ``peer_access``: devices read each other's memory over
    PCIe. ``driver_gibytes`` is the memory that the driver reports to PyTorch, in 2**30 bytes. ``aliases`` are names
    that drivers report. The fields that end in ``_source`` are codes of ``devices_sources.txt``; a device of the user's
    own has none. ``yields``: the shipped models of time are older, so the device changes no time of others.
    """

    name: Annotated[str, Show("Name")]
    memory_gbytes: Annotated[float | None, Show("GB")] = None
    memory_gbytes_per_s: Annotated[float, Show("GB/s")]
    fp64_tflops: Annotated[float | None, Show("fp64", at_width=120)] = None
    fp32_tflops: Annotated[float | None, Show("fp32")] = None
    fp32_matrix_tflops: float | None = None
    tf32_tflops: Annotated[float | None, Show("tf32")] = None
    fp16_tflops: Annotated[float | None, Show("fp16")] = None
    bf16_tflops: Annotated[float | None, Show("bf16")] = None
    fp8_tflops: Annotated[float | None, Show("fp8", at_width=110)] = None
    int8_tops: float | None = None
    fp4_tflops: float | None = None
    arch: Annotated[str, Show("Architecture", at_width=140)] = ""
    year: Annotated[int | None, Show("Year", "number", at_width=120)] = None
    compute_units: int | None = None
    boost_mhz: float | None = None
    l2_mbytes: float | None = None
    tdp_watts: float | None = None
    intra_link_gbytes_per_s: float | None = None
    pcie_gbytes_per_s: float | None = None
    internode_gbytes_per_s: float | None = None
    wiring: str = ""
    wired_devices: int | None = None
    peer_access: bool | None = None
    kind: Kind = "gpu"
    vendor: str = ""
    intra_link: str = ""
    notes: str = ""
    compute_source: str = ""
    memory_source: str = ""
    driver_source: str = ""
    link_source: str = ""
    wiring_source: str = ""
    driver_gibytes: float | None = None
    yields: bool = False
    aliases: Annotated[tuple[str, ...], Show("also called", fold=True, dim=True)] = ()

    def __post_init__(self) -> None:
        """Raise TensortideError for a kind or wiring that there is not, and a figure that is no positive number."""
        if self.kind not in KINDS:
            raise TensortideError(f"{self.name}: kind is {self.kind!r}; it is {', '.join(KINDS)}")
        if self.wiring not in WIRINGS:
            raise TensortideError(f"{self.name}: wiring is {self.wiring!r}; it is {', '.join(filter(None, WIRINGS))}")
        if WIRINGS[self.wiring].part is not None and (self.wired_devices or 0) < 2:
            raise TensortideError(f"{self.name}: wiring {self.wiring} needs wired_devices, the number that it joins")
        for field, of in Device.__annotations__.items():
            value = getattr(self, field)
            if not _FIGURE.search(of) or (value is None and "None" in of):
                continue
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 1 / _MOST < value < _MOST:
                raise TensortideError(
                    f"{self.name}: {field} is {value!r}; figures of devices are above {1 / _MOST:g} and below {_MOST:g}"
                )

    @property
    def usable_bytes(self) -> int | None:
        """Bytes that PyTorch's pool can have on an otherwise empty device; None where its memory is unknown.

        Of a GPU, what its driver reports, less a context of ``CONTEXT_BYTES``; where no source tells what the driver
        reports, ``LEAST_REPORTED`` of the memory it is sold with. Other devices: what they are sold with.
        """
        if self.kind != "gpu" or self.memory_gbytes is None:
            return None if self.memory_gbytes is None else int(self.memory_gbytes * 1e9)
        reported = self.driver_gibytes or LEAST_REPORTED * self.memory_gbytes
        return int(reported * 2**30) - CONTEXT_BYTES


CONTEXT_BYTES = 512 * 2**20
"""Memory that a CUDA context takes beside PyTorch's pool, with lazily loaded kernels: 0.3 to 0.5 GiB."""
LEAST_REPORTED = 0.91
"""Share of the memory that a GPU is sold with (in 2**30 bytes) that a driver reports at least: that of the T4, the
least of those with a source. Its GDDR6 keeps the codes of error correction, as that of the L4, A10 and L40S does."""

DEFAULT_DEVICE = "A100-SXM-80GB"
"""The device that is meant where none is named."""

_SHARED_BY = re.compile(r"\((?:per board, )?(\d+) (GPU|GCD)s\)")
_WHOLE_BOARD = (
    *("compute_units", "fp64_tflops", "fp32_tflops", "fp32_matrix_tflops", "tf32_tflops"),
    *("fp16_tflops", "bf16_tflops", "fp8_tflops"),
    *("int8_tops", "fp4_tflops", "memory_gbytes", "driver_gibytes", "memory_gbytes_per_s", "l2_mbytes"),
    *("intra_link_gbytes_per_s", "internode_gbytes_per_s", "tdp_watts"),
)


@functools.cache
def catalogue() -> tuple[Device, ...]:
    """Every device of the catalogue, in its order."""
    text = importlib.resources.files("tensortide.timing").joinpath("devices.csv").read_text("utf-8")
    return tuple(map(_device, csv.DictReader(text.splitlines())))


def _device(row: dict[str, str]) -> Device:
    given: dict[str, object] = {key: value for key, value in row.items() if value}
    given["aliases"] = tuple(row["aliases"].split(";")) if row["aliases"] else ()
    found = msgspec.convert(given, Device, strict=False)
    board = _SHARED_BY.search(found.name)
    return found if board is None else _share(found, board)


def _share(board: Device, shared: re.Match[str]) -> Device:
    """Return the part of a board of several devices that one process sees."""
    parts = int(shared[1])
    values = {key: getattr(board, key) for key in _WHOLE_BOARD}
    shares = {key: value / parts for key, value in values.items() if value is not None}
    if board.compute_units is not None:
        shares["compute_units"] = board.compute_units // parts
    name = board.name.replace(shared[0], f"(1 {shared[2]} of {parts})")
    return msgspec.structs.replace(board, name=name, aliases=(*board.aliases, board.name), **shares)


# -- names ------------------------------------------------------------------------------------------

_VENDOR_WORDS = frozenset(
    [
        *("nvidia", "amd", "intel", "google", "cloud", "aws", "corporation", "inc."),
        *("tesla", "geforce", "quadro", "instinct", "radeon"),
    ]
)
_ALL = "tensortide time --list shows all."
_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™]", re.IGNORECASE)
_SIZE = re.compile(r"[0-9]{1,3}")
"""A number that may be the memory of a card, in GB."""
_SOCKET = re.compile(r"sxm\d$")


def device(name: str, devices: Sequence[Device] | None = None) -> Device:
    """The device of ``devices`` (default: the catalogue) that ``name`` names, as people or drivers write it.

    Letters' case, vendor words, spaces and dashes do not count, nor the number of an SXM socket. Form factor and
    memory size do: a name that leaves them open ("H100": SXM or PCIe) is ambiguous.

    Raises:
        TensortideError: no device is called that, or several are; the message lists near names.

    Examples:
        >>> device("NVIDIA A100-SXM4-80GB").name
        'A100-SXM-80GB'
    """
    devices = catalogue() if devices is None else devices
    wanted = _plain(name)
    found = [d for d in devices if wanted in map(_plain, (d.name, *d.aliases))]
    if len(found) == 1:
        return found[0]
    if found:
        raise TensortideError(f"{len(found)} devices are called {name!r}: {', '.join(d.name for d in found)}.")
    having = _having(name, devices)
    if len(having) > 1:
        names = " or ".join(d.name for d in having)
        raise TensortideError(f"{name!r} is ambiguous: it may be {names}. Write the whole name.")
    size = [f"{name.strip()}GB"] * bool(_SIZE.fullmatch(name.strip()))
    near = size + _near(name, devices)
    if not near:
        raise TensortideError(f"no device is called {name!r} in the catalogue of {len(devices)}.\n{_ALL}")
    raise TensortideError(f"no device is called {name!r}.\nNear names: {', '.join(near)}. {_ALL}")


def matching(words: str) -> tuple[Device, ...]:
    """The devices that have each of ``words`` in their names, vendor, architecture or kind; without words all.

    Raises TensortideError, with near names, if there is none.

    Examples:
        >>> [each.name for each in matching("amd cdna3")]
        ['MI325X', 'MI300X']
    """
    wanted = words.lower().split()
    found = [each for each in catalogue() if all(word in _described(each) for word in wanted)]
    return tuple(found) or (device(words),)


def _described(found: Device) -> str:
    return " ".join((found.name, *found.aliases, found.vendor, found.arch, found.kind)).lower()


SHORT = {"h100": "H100-SXM-80GB", "a100": "A100-SXM-80GB"}
"""Short names that people write, and the device that each is taken for: the board of most training machines."""


def meant(name: str, devices: Sequence[Device] | None = None) -> tuple[Device, tuple[str, ...]]:
    """The device that a person means by ``name``, and what else it might be.

    The name may say less than ``device`` asks for, if it is in ``SHORT`` or one device alone has all of its words.

    Raises TensortideError as ``device`` does: a name that several devices share, and that is not in ``SHORT``.

    Examples:
        >>> meant("h100-sxm")[0].name, meant("h100")[1]
        ('H100-SXM-80GB', ('H100-PCIe-80GB',))
    """
    devices = catalogue() if devices is None else devices
    having = _having(name, devices)
    short = SHORT.get(_plain(name))
    if short is not None:
        found = device(short, devices)
        return found, tuple(d.name for d in having if d is not found)
    try:
        return device(name, devices), ()
    except TensortideError:
        if len(having) == 1:
            return having[0], ()
        raise


def named(name: str) -> Device:
    """The device of the catalogue that a person means, as ``meant``; says so if the name is short for several."""
    found, others = meant(name)
    if others:
        LOG.info("%s is taken for %s; write %s if you mean that", name, found.name, " or ".join(others))
    return found


def _having(name: str, devices: Sequence[Device]) -> list[Device]:
    """The devices that have all words of ``name`` in one of their names."""
    words = set(_words(name))
    return [d for d in devices if words and any(words <= set(_words(known)) for known in (d.name, *d.aliases))]


def _words(name: str) -> list[str]:
    """The words of ``name`` that tell devices apart."""
    words = re.split(r"[\s_\-,()]+", _MARKS.sub(" ", name.lower()))
    return [_SOCKET.sub("sxm", word) for word in words if word and word not in _VENDOR_WORDS]


def _plain(name: str) -> str:
    return "".join(_words(name))


def _near(name: str, devices: Sequence[Device], most: int = 8) -> list[str]:
    """Names of devices that have all words of ``name``, else of those that are spelled alike."""
    words, wanted = set(_words(name)), _plain(name)
    names = {known: d.name for d in devices for known in (d.name, *d.aliases)}
    found = [d for known, d in names.items() if words and (words <= set(_words(known)) or wanted in _plain(known))]
    if not found:
        plain = {_plain(known): d for known, d in names.items()}
        found = [plain[known] for known in difflib.get_close_matches(wanted, plain, n=most, cutoff=0.5)]
    return list(dict.fromkeys(found))[:most]
