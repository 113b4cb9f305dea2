"""Files to try placement on: a network, servers for networks and for captured steps, a configuration of a search."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from tensortide.errors import OutputError
from tensortide.request import Opt, Request
from tensortide.shown import Show
from tensortide.write import write_file

__all__ = ["Example", "ExamplesRequest", "answer", "examples"]

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width of the bottleneck, and blocks, of each stage of ResNet-50."""
GPUS = 4


class Example(NamedTuple):
    """A file: its name, what it holds, a command that reads it, and its text."""

    file: Annotated[str, Show("File", "path")]
    holds: Annotated[str, Show("Holds", fold=True)]
    command: Annotated[str, Show("Try", "code", fold=True)]
    text: str


@dataclass(frozen=True, kw_only=True)
class ExamplesRequest(Request):
    """Files to try placement on."""

    GROUP = "Output"

    out: Annotated[Path, Opt("Folder to write the files to (default: this one).")] = Path()


def answer(asked: ExamplesRequest) -> dict[Path, Example]:
    """Write the files, and return them by path. Raises OutputError if one exists."""
    files = {asked.out / one.file: one for one in examples()}
    for path in files:
        if path.exists():
            raise OutputError(f"{path} exists: give another folder with --out.")
    return {write_file(path, one.text, folders=True): one for path, one in files.items()}


def examples() -> tuple[Example, ...]:
    """Return the files."""
    return (
        Example(
            "resnet50.json",
            "a network of layers: ResNet-50",
            "tensortide place resnet50.json --machine server.json",
            _text(_resnet50()),
        ),
        Example(
            "server.json",
            f"devices for a network: a CPU and {GPUS} GPUs of 4 GB each",
            "tensortide place compare resnet50.json --machine server.json",
            _text(_server()),
        ),
        Example(
            "cluster.json",
            f"devices for a captured step: a CPU and {GPUS} A100",
            "tensortide place gpt2 --machine cluster.json",
            _text(_cluster()),
        ),
        Example(
            "config.json",
            "a configuration: MAP-Elites, and its pictures",
            "tensortide place run config.json",
            _text(_configuration()),
        ),
    )


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"


def _resnet50() -> dict[str, Any]:
    """ResNet-50 as a network of layers, for images of 224 x 224."""
    layers: dict[str, Any] = {"data": {"type": "Input", "parents": [], "tensor": [128, 224, 224, 3]}}

    def convolution(name: str, parent: str, size: int, width: int, stride: int = 1) -> str:
        layers[name] = _window("Convolution", parent, stride) | {"filter": [size, size, -1, width]}
        return name

    at = convolution("conv1", "data", 7, 64, 2)
    layers["pool1"] = _window("Pooling", at, 2) | {"ksize": [1, 3, 3, 1]}
    at = "pool1"
    for stage, (width, blocks) in enumerate(STAGES, 1):
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            stride = 2 if stage > 1 and not block else 1
            shortcut = convolution(f"{name}.shortcut", at, 1, 4 * width, stride) if not block else at
            at = convolution(f"{name}.conv1", at, 1, width, stride)
            at = convolution(f"{name}.conv2", at, 3, width)
            at = convolution(f"{name}.conv3", at, 1, 4 * width)
            layers[f"{name}.add"] = {"type": "Elementwise", "parents": [at, shortcut]}
            at = f"{name}.add"
    layers["pool5"] = _window("AvgPool", at, 1) | {"ksize": [1, 7, 7, 1], "padding": "VALID"}
    layers["fc"] = {"type": "InnerProduct", "parents": ["pool5"], "num_outputs": 1000}
    layers["prob"] = {"type": "Softmax", "parents": ["fc"]}
    return {"name": "ResNet-50", "layers": layers}


def _window(kind: str, parent: str, stride: int) -> dict[str, Any]:
    return {"type": kind, "parents": [parent], "strides": [1, stride, stride, 1], "padding": "SAME"}


def _server() -> dict[str, Any]:
    """A CPU and four GPUs of which a step may use 4 GB each: PCIe to the CPU, shared; NVLink between each two GPUs."""
    host = {"name": "Xeon", "kind": "cpu", "compute_units": 24, "boost_mhz": 2600, "fp32_tflops": 1.8}
    gpu = {"name": "V100", "fp32_tflops": 15.7, "boost_mhz": 1530, "memory_gbytes_per_s": 900}
    pcie = {"bytes_per_s": 16 * 10**9, "latency_ns": 10_000}
    nvlink = {"name": "nvlink", "bytes_per_s": 25 * 10**9, "latency_ns": 5_000}
    return {
        "name": "a server",
        "devices": [
            {"name": "cpu", "memory_bytes": 64 * 10**9, "device": {**host, "memory_gbytes_per_s": 76.8}},
            {"name": "gpu", "count": GPUS, "memory_bytes": 4 * 10**9, "device": gpu},
        ],
        "channels": [{"name": "pcie", "link": pcie, "duplex": False}],
        "links": [{"between": ["cpu", "gpu*"], "channel": "pcie"}, {"between": ["gpu*"], "link": nvlink}],
    }


def _cluster() -> dict[str, Any]:
    """A workstation for captured steps."""
    host = {"name": "24 cores", "kind": "cpu", "fp32_tflops": 1.5, "memory_gbytes_per_s": 90}
    return {
        "name": "a workstation",
        "devices": [
            {"name": "cpu", "memory_bytes": 64 * 10**9, "device": host},
            {"name": "gpu", "count": GPUS, "device": "A100-SXM-80GB"},
        ],
        "links": [
            {"between": ["gpu*"], "link": {"name": "nvlink", "bytes_per_s": 300 * 10**9, "latency_ns": 2_000}},
            {"between": ["cpu", "gpu*"], "link": "pcie4"},
        ],
    }


def _configuration() -> dict[str, Any]:
    """A search of MAP-Elites as Exprimo describes one, with pictures of its archive."""
    arguments = {"steps": 5000, "initial_size": 50, "allow_cpu": False, "show_score_plot": True}
    arguments |= {"archive_log_period": 500, "plot_animation": True, "animation_fps": 2}
    return {
        "net_path": "resnet50.json",
        "device_graph_path": "server.json",
        "optimizer": "map_elites",
        "log_dir": "run",
        "optimizer_args": arguments,
    }
