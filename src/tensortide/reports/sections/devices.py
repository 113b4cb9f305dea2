"""Section ``devices``: devices of the catalogue, by the names under which a machine is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tensortide.reports.blocks import Column, Document, Note, Section, Table, UnitName
from tensortide.timing.catalogue import Device

__all__ = ["document"]


class _Figure(NamedTuple):
    """A field of Device as a column: its label ("": for data alone), and the width from which on it is shown."""

    field: str
    label: str = ""
    at_width: int = 0
    unit: UnitName = "number"


_FIGURES = (
    _Figure("memory_gbytes", "GB"),
    _Figure("memory_gbytes_per_s", "GB/s"),
    _Figure("fp64_tflops", "fp64", 120),
    _Figure("fp32_tflops", "fp32"),
    _Figure("fp32_matrix_tflops"),
    _Figure("tf32_tflops", "tf32"),
    _Figure("fp16_tflops", "fp16"),
    _Figure("bf16_tflops", "bf16"),
    _Figure("fp8_tflops", "fp8", 110),
    _Figure("int8_tops"),
    _Figure("fp4_tflops"),
    _Figure("arch", "Architecture", 140, "text"),
    _Figure("year", "Year", 120),
    *(_Figure(field) for field in ("compute_units", "boost_mhz", "l2_mbytes", "tdp_watts")),
    *(_Figure(f"{link}_gbytes_per_s") for link in ("intra_link", "pcie", "internode")),
    *(_Figure(field, unit="text") for field in ("kind", "vendor", "intra_link", "notes")),
    *(_Figure(f"{what}_source", unit="text") for what in ("compute", "memory", "driver", "link")),
    _Figure("driver_gibytes"),
)
_HOW = (
    "TFLOP/s by dtype are dense peaks of a device as a process sees it: of its matrix units, in fp32 without "
    "them. In names, letters' case, vendor words, spaces and dashes do not count. --machine 8xh200-sxm: several; "
    "--machine local: the machine you sit at."
)


def document(found: Sequence[Device], words: str = "") -> Document:
    """List the devices ``found`` in the catalogue by ``words``."""
    columns = (
        Column("name", "Name", "text", tuple(each.name for each in found)),
        *(_column(found, figure) for figure in _FIGURES),
        Column("aliases", "also called", "text", tuple(", ".join(each.aliases) for each in found), fold=True, dim=True),
    )
    table = Table(key="devices", columns=columns, heads=1)
    section = Section("devices", "Devices", blocks=(table, Note(text=_HOW)))
    title = "Devices of the catalogue" + f": {words}" * bool(words)
    return Document(title=title, subtitle=(f"{len(found)} device{'s' * (len(found) != 1)}",), sections=(section,))


def _column(found: Sequence[Device], figure: _Figure) -> Column:
    values = tuple(getattr(each, figure.field) for each in found)
    return Column(figure.field, figure.label, figure.unit, values, at_width=figure.at_width, data=not figure.label)
