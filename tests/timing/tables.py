"""Measured times of the reference tables as samples. Their columns: the README beside them."""

from __future__ import annotations

import ast
import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scripts.training.collectives import Collectives
from tensortide.timing import Device, device
from tensortide.timing.collectives.constants import fabric
from tensortide.timing.fit.samples import Samples, samples
from tensortide.timing.work import Work, elementwise, product
from tests.reference import reference_folder

GEMM_SYSTEMS = {
    "a100_sxm": "A100-SXM-80GB",
    "h100_sxm": "H100-SXM-80GB",
    "h200_sxm": "H200-SXM-141GB",
    "b200_sxm": "B200-SXM-180GB",
    "gb200": "GB200 (per GPU)",
    "b300_sxm": "B300-SXM-288GB",
    "gb300": "GB300 (per GPU)",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX PRO 6000 Server",
}
"""Systems of the table of 16-bit products, by their names in the catalogue."""

FP32_DEVICES = {
    "A100-PCIE-40GB": "A100-PCIe-40GB",
    "A100-PCIE-80GB": "A100-PCIe-80GB",
    "H100": "H100-PCIe-80GB",
    "L4": "L4",
    "P100-PCIE-16GB": "P100-PCIe-16GB",
    "P4": "P4",
    "T4": "T4",
    "V100-PCIE-32GB": "V100-PCIe-32GB",
    "MI100": "MI100",
    "MI210": "MI210",
}
"""Devices of the fp32 tables, per op, by their names in the catalogue."""

STEP_DEVICES = {
    "NVIDIA_A100-PCIE-40GB": "A100-PCIe-40GB",
    "NVIDIA_A100_80GB_PCIe": "A100-PCIe-80GB",
    "Tesla_P100-PCIE-16GB": "P100-PCIe-16GB",
    "Tesla_P4": "P4",
    "Tesla_T4": "T4",
    "Tesla_V100-PCIE-32GB": "V100-PCIe-32GB",
    "AMD_Instinct_MI100": "MI100",
    "AMD_Instinct_MI210": "MI210",
}
"""Devices of the table of fp32 steps, by their names in the catalogue."""

ISSUE_NS = 24_000.0
"""What the host took to issue an op in the fp32 tables: on all of their NVIDIA devices the least times lie between 24
and 31 us, whatever the op moves."""

_TWO_OPERANDS = frozenset({"add", "div", "mul", "pow"})
_FAMILY = {"gelu": "transcendental", "tanh": "transcendental", "pow": "transcendental", "powu": "transcendental"}
_FAMILY |= {"ln": "normalization", "softmax": "softmax"}


def rows(name: str) -> Iterator[dict[str, str]]:
    """The rows of the table ``name`` under ``timing/``."""
    with gzip.open(reference_folder() / "timing" / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def half_precision_products(dtype: str = "bfloat16") -> dict[str, Samples]:
    """Products of 16-bit (or ``fp8``) matrices by system."""
    found: dict[str, list[tuple[Work, float]]] = defaultdict(list)
    name = {"fp8": "float8_e4m3fn"}.get(dtype, dtype)
    for row in rows("aiconfigurator_gemm_bf16_fp8"):
        if row["gemm_dtype"] == dtype:
            work = product(int(row["m"]), int(row["n"]), int(row["k"]), dtype=name)
            found[row["system"]].append((work, 1e6 * float(row["latency_ms"])))
    return {system: _samples(device(GEMM_SYSTEMS[system]), found[system]) for system in found}


def fp32_products(*splits: str) -> dict[str, Samples]:
    """fp32 products of the ``splits`` (train, test, test_amd) by device of the catalogue."""
    found: dict[str, list[tuple[Work, float]]] = defaultdict(list)
    for row in rows("neusight_gpu_matmul_fp32"):
        if row["split"] in splits:
            batch, m, n, k = (int(row[key]) for key in "BMNK")
            family = "bmm" if row["op"] == "bmm" else "linear"
            found[FP32_DEVICES[row["device"]]].append(
                (product(m, n, k, batch=batch, family=family), 1e6 * float(row["latency_ms"]))
            )
    return {name: _samples(device(name), found[name], ISSUE_NS) for name in found}


def fp32_vectors(*splits: str) -> dict[str, Samples]:
    """fp32 ops on rows of elements, of the ``splits`` (train, train_amd, test), by device of the catalogue."""
    found: dict[str, list[tuple[Work, float]]] = defaultdict(list)
    for row in rows("neusight_gpu_vector_fp32"):
        if row["split"] in splits:
            work = vector(row["op"], int(row["B"]), int(row["H"]))
            found[FP32_DEVICES[row["device"]]].append((work, 1e6 * float(row["latency_ms"])))
    return {name: _samples(device(name), found[name], ISSUE_NS) for name in found}


def vector(op: str, height: int, width: int) -> Work:
    """Work of an op of the fp32 tables: ``add`` has two tensors, ``addu`` a tensor and a scalar."""
    return elementwise(height, width, operands=1 + (op in _TWO_OPERANDS), family=_FAMILY.get(op, "pointwise"))


def _samples(row: Device, pairs: list[tuple[Work, float]], issue_ns: float = 0.0) -> Samples:
    return samples(row, [work for work, _ in pairs], [ns for _, ns in pairs], issue_ns)


# -- steps ------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A measured fp32 step: its device, and how often it runs each Work. Published predictions are by their authors."""

    device: Device
    model: str
    mode: str
    batch: int
    works: tuple[tuple[Work, int], ...]
    ns: float
    published: dict[str, float]


def fp32_steps(*modes: str) -> list[Step]:
    """Measured steps of the ``modes`` (train, inf) that have a graph of their ops and a device of the catalogue."""
    graphs: dict[tuple[str, ...], list[tuple[Work, int]]] = defaultdict(list)
    key = ("mode", "seq_len", "batch")
    for row in rows("neusight_opgraphs"):
        work = _graph_work(row["op"], ast.literal_eval(row["dims"]))
        graphs[(row["model"], *(row[k] for k in key))].append((work, int(row["count"])))
    found = []
    for row in rows("neusight_gpu_e2e_models"):
        works = graphs.get((row["model_name"], row["mode"], row["seqlen"], row["batch"]))
        if row["option"] or row["device"] not in STEP_DEVICES or row["mode"] not in modes or works is None:
            continue
        published = {
            name: 1e6 * float(row[f"{name}_pred_e2e_ms"])
            for name in ("neusight", "roofline", "habitat", "lietal")
            if row[f"{name}_pred_e2e_ms"]
        }
        where, ns = device(STEP_DEVICES[row["device"]]), 1e6 * float(row["measured_e2e_ms"])
        found.append(Step(where, row["model_name"], row["mode"], int(row["batch"]), tuple(works), ns, published))
    return found


def _graph_work(op: str, dims: tuple[object, ...]) -> Work:
    """Work of a row of the graphs, whose products have (M, K, N) and (B, M, K, N)."""
    if op == "Linear":
        m, k, n = _integers(dims)
        return product(m, n, k, family="linear")
    if op == "BMM":
        batch, m, k, n = _integers(dims)
        return product(m, n, k, batch=batch, family="bmm")
    if op == "MEM":
        nbytes = sum(4 * math.prod(_integers(shape)) for shape in dims if isinstance(shape, tuple))
        return Work("copy", "float32", 0, 0, nbytes // 2, nbytes - nbytes // 2)
    return vector(op.removeprefix("VEC"), *_integers(dims))


def _integers(dims: tuple[object, ...]) -> list[int]:
    return [int(str(each)) for each in dims]


# -- attention and convolution ----------------------------------------------------------------------


def attention() -> dict[str, Samples]:
    """Causal forward attention in bf16 by system."""
    found: dict[str, list[tuple[Work, float]]] = defaultdict(list)
    for row in rows("aiconfigurator_context_attention_bf16"):
        batch, length, heads, pairs, size = (
            int(row[key]) for key in ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
        )
        scores = batch * heads * length * (length + 1) // 2
        item = 2 * batch * length * size
        work = Work(
            "attention", "bfloat16", 4 * scores * size, 6 * scores,
            item * (heads + 2 * pairs), item * heads, (batch * heads, length, length, size),
        )  # fmt: skip
        found[row["system"]].append((work, 1e6 * float(row["latency_ms"])))
    return {system: _samples(device(GEMM_SYSTEMS[system]), found[system]) for system in found}


def convolutions() -> dict[str, dict[str, Samples]]:
    """Forward fp32 convolutions by family (``convolution_1x1``, ``convolution_kxk``), then by device."""
    found: dict[tuple[str, str], list[tuple[Work, float]]] = defaultdict(list)
    for row in rows("extra/neusight_gpu_conv_fp32"):
        if row["device"] not in FP32_DEVICES:
            continue
        batch, channels, results, side, kernel, stride, padding = (
            int(row[key]) for key in ("batch", "Cin", "Cout", "hw", "ksize", "stride", "padding")
        )
        sites = batch * ((side + 2 * padding - kernel) // stride + 1) ** 2
        taps = channels * kernel * kernel
        family = "convolution_1x1" if kernel == 1 else "convolution_kxk"
        read = 4 * (batch * channels * side * side + results * taps)
        work = Work(
            family, "float32", 2 * sites * results * taps, 0, read, 4 * sites * results, (1, sites, results, taps)
        )
        if sites > 0:
            found[family, FP32_DEVICES[row["device"]]].append((work, 1e6 * float(row["latency_ms"])))
    families: dict[str, dict[str, Samples]] = defaultdict(dict)
    for (family, name), pairs in found.items():
        families[family][name] = _samples(device(name), pairs, ISSUE_NS)
    return dict(families)


# -- collectives ------------------------------------------------------------------------------------

_NCCL_KINDS = {"alltoall": "all_to_all"}
_PAIRS = {"a100_dgx": "A100-SXM-80GB", "h100_dgx": "H100-SXM-80GB"}
"""Clusters of the table of all-reduces and of send and receive. The rows of send and receive of the pairwise clusters
of A100 and H100 are the same: at least one is misnamed, and they are left out."""


def nccl(dtype: str = "half", *, older: bool = False) -> list[Collectives]:
    """Collectives within a node, of the newest library on each system, or of all ``older`` ones."""
    found: dict[tuple[str, str], list[tuple[int, int, float]]] = defaultdict(list)
    kept = [row for row in rows("aiconfigurator_nccl") if row["nccl_dtype"] == dtype]
    newest: dict[str, tuple[int, ...]] = {}
    for row in kept:
        newest[row["system"]] = max(newest.get(row["system"], ()), _version(row))
    for row in kept:
        if (_version(row) < newest[row["system"]]) == older:
            kind = _NCCL_KINDS.get(row["op_name"], row["op_name"])
            nbytes = {"half": 2, "int8": 1}[dtype] * int(row["message_elems"])
            found[row["system"], kind].append((int(row["num_gpus"]), nbytes, 1e6 * float(row["latency_ms"])))
    return [_collectives(GEMM_SYSTEMS[system], kind, found[system, kind]) for system, kind in found]


def _version(row: dict[str, str]) -> tuple[int, ...]:
    return tuple(map(int, row["nccl_dir"].split(".")))


def send_recv() -> list[Collectives]:
    """Send and receive between two devices of a node: of each power of two, the least size."""
    return [
        _collectives(_PAIRS[name], "send_recv", _thinned(pairs))
        for (name, kind, ranks, per_node), pairs in _vidur().items()
        if kind == "send_recv" and ranks == per_node
    ]


def _thinned(pairs: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """As many samples of each size, where the table has equal steps of bytes."""
    return list(
        {nbytes.bit_length(): (ranks, nbytes, ns) for ranks, nbytes, ns in sorted(pairs, reverse=True)}.values()
    )


def between_nodes() -> dict[tuple[int, int], Collectives]:
    """All-reduces over nodes of A100s, by ranks and devices per node."""
    return {
        (ranks, per_node): _collectives(_PAIRS[name], kind, pairs)
        for (name, kind, ranks, per_node), pairs in _vidur().items()
        if kind == "all_reduce" and per_node < ranks and name == "a100_dgx"
    }


def pairs_of_nodes() -> dict[str, Collectives]:
    """Send and receive between two nodes, by device."""
    return {
        _PAIRS[name]: _collectives(_PAIRS[name], kind, pairs)
        for (name, kind, ranks, per_node), pairs in _vidur().items()
        if kind == "send_recv" and per_node < ranks
    }


def _vidur() -> dict[tuple[str, str, int, int], list[tuple[int, int, float]]]:
    found: dict[tuple[str, str, int, int], list[tuple[int, int, float]]] = defaultdict(list)
    for row in rows("vidur_nvlink_collectives"):
        if row["cluster"] in _PAIRS:
            ranks = int(row["num_workers"])
            key = (row["cluster"], row["collective"], ranks, int(row["devices_per_node"]))
            found[key].append((ranks, int(row["bytes"]), 1e6 * float(row["median_ms"])))
    return found


def _collectives(name: str, kind: str, measured: list[tuple[int, int, float]]) -> Collectives:
    row = device(name)
    ranks, nbytes, ns = np.array(sorted(measured), dtype=float).T
    assert row.intra_link_gbytes_per_s is not None
    return Collectives(row.name, kind, fabric(row.intra_link), row.intra_link_gbytes_per_s, ranks, nbytes, ns)
