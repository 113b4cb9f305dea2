"""The kernel traces of G10's reference data as graphs: every tensor a storage of its own, durations in nanoseconds."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path

from tensortide.graph import Graph, Role
from tensortide.memory import Idleness, idleness
from tests.graphs import Builder

TRACES = ("BERT_Base-128", "BERT_Base-256", "VIT-512", "Inceptionv3-512")
_TENSOR = re.compile(r"tensor(\d+) Is weight \(global\)\?: ([01]), Size in byte: (\d+), Range")


def read(folder: Path) -> tuple[Graph, list[int]]:
    """The graph of a trace; a cycle of its clock is 5/6 ns."""
    b = Builder()
    tensors = {}
    for line in _text(folder, "tensors").splitlines():
        match = _TENSOR.match(line)
        assert match is not None
        number, shared, nbytes = map(int, match.groups())
        tensors[number] = b.storage(nbytes, Role.PARAMETER if shared else Role.ACTIVATION, None, None)
    blocks = _text(folder, "kernels").split("_" * 68 + "\n")[:-1]
    durations = []
    for block in blocks:
        before, inputs, outputs = re.split(r"(?:In|Out)put Tensors:\n", block)
        durations.append(round(int(before.split("Execution Time: ")[1].split()[0]) * 5 / 6))
        b.op(*([tensors[int(match[0])] for match in _TENSOR.findall(side)] for side in (inputs, outputs)))
    b.storages = [
        s if s.role is Role.PARAMETER else type(s)(s.nbytes, s.device, s.role, None, len(blocks)) for s in b.storages
    ]
    return b.graph(), durations


@cache
def idleness_of(folder: Path) -> Idleness:
    return idleness(*read(folder), mode="compat")


def _text(folder: Path, name: str) -> str:
    return gzip.decompress((folder / f"{name}.config.gz").read_bytes()).decode()
