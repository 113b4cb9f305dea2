"""The published nets, device graphs and results, read once."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

from tensortide.placements import COMPAT, Cluster, Net, Settings, read_device_graph, read_net
from tests.reference import reference_folder

PLACEMENT = reference_folder() / "placement"
EXPRIMO = PLACEMENT / "inputs" / "exprimo"
PUBLISHED = Settings(batch_size=128, comp_penalization=0.9, comm_penalization=0.25, mode=COMPAT)
"""Settings of most of the published results."""


def published(name: str) -> Any:
    return json.loads(gzip.decompress((PLACEMENT / f"{name}.json.gz").read_bytes()))


@functools.cache
def net(name: str) -> Net:
    return read_net(EXPRIMO / "nets" / f"{name}.json")


@functools.cache
def cluster(name: str) -> Cluster:
    return read_device_graph(EXPRIMO / "device_graphs" / f"{name}.json")


def graph_file(name: str) -> Path:
    return EXPRIMO / "device_graphs" / f"{name}.json"
