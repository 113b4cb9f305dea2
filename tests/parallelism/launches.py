"""Launches of public training stacks (``reference/launches``) as cases of the closed form. Columns: the README beside
the table. Attention is that of FlashAttention-2, of Megatron that of cuDNN, which Transformer Engine calls."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration, Transformer, transformer
from tensortide.parallelism.closed.columns import Step
from tensortide.parallelism.closed.configuration import Recompute
from tensortide.timing.collectives import nodes_of

PER_NODE = 8
DEVICES = {"H100-96GB-HBM2e-2.4TB/s-500W": "H100-96GB"}
_MODELS = (("Llama 3.1 ", "llama3-"), ("Llama 2 ", "llama2-"), ("Llama 3 ", "llama3-"), ("MPT ", "mpt-"))
_LLAMA2_34B = "layers=48,hidden=8192,heads=64,kv_heads=8,feedforward=22016,gated=1,untied=1,seq=4096,vocab=32000"


class Launch(NamedTuple):
    """A launch: its number in the table, stack and device, the step, and seconds measured."""

    id: str
    stack: str
    step: Step
    seconds: float


def launches(reference: Path) -> Iterator[Launch]:
    """Launches that the closed form can say: decoders by FSDP, with tensor or context ranks, and those of Megatron; not
    FSDP in a pipeline."""
    with (reference / "launches" / "launches.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            fsdp = row["stack"].startswith(("llm-foundry", "fms-fsdp", "torchtitan")) and "PP" not in row["parallelism"]
            if fsdp or row["stack"].startswith("Megatron"):
                yield _launch(row)


def _launch(row: dict[str, str]) -> Launch:
    size, device = int(row["world_size"]), DEVICES.get(row["gpu"], row["gpu"])
    tensor, context, pipeline, chunks = (_degree(row, axis) for axis in ("TP", "CP", "PP", "VP"))
    data, megatron = size // (tensor * context * pipeline), row["stack"].startswith("Megatron")
    micro_batch, narrow = int(row["micro_batch"]), "fp8" in row["dtype"] or "float8" in row["dtype"]
    one = Configuration(
        batch=data * micro_batch * int(row["grad_accum"]),
        micro_batch=micro_batch,
        data=data,
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        zero=1 if megatron else 2 if "GRAD_OP" in row["parallelism"] else 3,
        recompute=_recompute(row),
        fused_attention=True,
        causal_half=True,
        kernel="cudnn" if megatron else "flash2",
        overlap_data=True,
        overlap_tensor=megatron or "async_tensor" in row["command"],
        overlap_pipeline=megatron,
        sequence=tensor > 1,
        compiled=row["compile"] == "yes",
        gradient_bytes=2 if row["stack"].startswith("llm") else 4,
        dtype="float8_e4m3fn" if narrow else "bfloat16",
    )
    nodes = nodes_of(device, devices_per_node=min(PER_NODE, size), nodes=max(1, size // PER_NODE))
    stack = f"{row['stack'].split()[0]}, {device}{', fp8' * narrow}"
    return Launch(row["id"], stack, Step(_shape(row), one, nodes), float(row["measured_step_s"]))


def _degree(row: dict[str, str], axis: str) -> int:
    found = re.search(rf"{axis}(\d+)", row["parallelism"])
    return int(found[1]) if found else 1


def _recompute(row: dict[str, str]) -> Recompute:
    """Recomputation; none for ``selective`` of fms, which is that of some blocks, the table does not say how many."""
    if row["ac"] == "full":
        return "full"
    return "ops" if row["ac"].startswith("selective op") else "none"


def _shape(row: dict[str, str]) -> Transformer:
    name, size = next((ours, row["model"].removeprefix(its)) for its, ours in _MODELS if row["model"].startswith(its))
    text = name + size.split()[0].lower()
    return replace(transformer(_LLAMA2_34B if text == "llama2-34b" else text), seq=int(row["seq"]))
