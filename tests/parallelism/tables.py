"""Measured training steps on many devices as cases of the closed form. Columns of the tables: the README beside
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from scripts.training.step_fits import MeasuredSteps, measured
from tensortide.parallelism.closed.columns import Step
from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.timing.collectives import Nodes, nodes_of
from tests.timing.tables import rows

A100, H100, B200 = "A100-SXM-80GB", "H100-SXM-80GB", "B200-SXM-180GB"
PER_NODE = 8
UNPADDED, PADDED = 50257, 51200
"""Words of GPT-2, as they are and padded for tensor groups."""


class Case(NamedTuple):
    """A measured step: its name, group (a model size, or a series in which the step is scaled) and seconds."""

    name: str
    group: str
    step: Step
    seconds: float


def eight_to_a_node(device: str, devices: int) -> Nodes:
    """``devices`` of a type, eight to a node as far as they fill nodes."""
    per = min(PER_NODE, devices)
    return nodes_of(device, devices_per_node=per, nodes=devices // per)


def vtrain(which: str) -> list[Case]:
    """The steps of vTrain: ``multi`` (several nodes) or ``single``.

    Neither recomputation nor vocabulary is stated; both are inferred. *Several nodes* recompute: most of these steps do
    not fit into 80 GB otherwise. *One node*: all fit. A layer takes 1.85 ms more for each sample at width 2048 than
    0.75 at 1024; with a fourth pass the products alone would need over 95 % of the peak, and A100s reach 87 %. On one
    rank head and loss take 3.4 to 5.5 times as long as on two, which are given half of them: 50257 words as they are,
    which tensor cores cannot read 16 bytes at a time, and padded where they are divided. More replicas of a node take
    longer by an exchange of gradients at 230 to 250 GB/s in 2 bytes, which is what all-reduces reach there; 4 bytes
    would need 460 to 500 of the 300 that NVLink has. Between nodes it is 4 bytes: at the same share of the rates.
    """
    found, several = [], which == "multi"
    for number, row in enumerate(rows(f"vtrain_ground_truth_{which}")):
        shape = Transformer(
            layers=int(row["# layers"]),
            hidden=int(row["hidden size"]),
            heads=int(row["attention heads"]),
            seq=int(row["sequence length"]),
            vocab=UNPADDED if not several and int(row["tensor parallelism"]) == 1 else PADDED,
        )
        one = Configuration(
            batch=int(row["global batch"]),
            micro_batch=int(row["micro batch"]),
            data=int(row["data parallelism"]),
            tensor=int(row["tensor parallelism"]),
            pipeline=int(row["pipeline parallelism"]),
            recompute="full" if several else "none",
            gradient_bytes=4 if several else 2,
        )
        group = row.get("Parameters (billion)", "")
        step = Step(shape, one, eight_to_a_node(A100, int(row["# GPUs"])))
        found.append(Case(f"{which} {number}", group, step, float(row["iteration time (ms)"]) / 1e3))
    return found


def shape_of(row: dict[str, str]) -> Transformer:
    """The transformer of a row of the tables of published runs."""
    return Transformer(
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        seq=int(row["seq_len"]),
        vocab=int(row["vocab"]),
    )


def megatron_2021(micro_batch: int) -> Iterator[Case]:
    """Weak scaling of 2021, with full recomputation; the micro-batch is unknown. Schedules are taken as
    1F1B, one chunk."""
    for row in rows("megatron_sc21_table"):
        one = Configuration(
            batch=int(row["global_batch"]),
            micro_batch=micro_batch,
            data=int(row["dp"]),
            tensor=int(row["tp"]),
            pipeline=int(row["pp"]),
        )
        step = Step(shape_of(row), one, eight_to_a_node(A100, int(row["gpus"])))
        yield Case(f"{row['params_b']}B", "weak scaling, A100", step, float(row["derived_iter_time_s"]))


def mt_nlg() -> Iterator[Case]:
    """Strong scaling of a 530B model over data-parallel replicas; micro-batch 1."""
    for row in rows("mt_nlg_530b"):
        one = Configuration(
            batch=int(row["global_batch"]), data=int(row["dp"]), tensor=int(row["tp"]), pipeline=int(row["pp"])
        )
        step = Step(shape_of(row), one, eight_to_a_node(A100, int(row["gpus"])))
        yield Case(f"{row['gpus']} A100", "530B, more replicas", step, float(row["measured_iter_s"]))


def megatron_core(micro_batch: int) -> Iterator[Case]:
    """Weak scaling of Megatron Core on H100: no recomputation, communication overlapped as its authors state. Its
    transfers overlap with the interleaved schedule alone: pipelines are taken to have two chunks, the fewest of it."""
    for row in rows("megatron_core_h100_weak_scaling"):
        one = Configuration(
            batch=int(row["global_batch"]),
            micro_batch=micro_batch,
            data=int(row["dp"]),
            tensor=int(row["tp"]),
            pipeline=int(row["pp"]),
            chunks=2 if int(row["pp"]) > 1 else 1,
            schedule="interleaved" if int(row["pp"]) > 1 else "1f1b",
            dtype="bfloat16",
        )
        step = Step(shape_of(row), overlapped(one), eight_to_a_node(H100, int(row["gpus"])))
        yield Case(row["model"], "weak scaling, H100", step, float(row["derived_iter_time_s"]))


def overlapped(one: Configuration) -> Configuration:
    """Megatron Core with all of its overlap, as its authors state: data, tensor and pipeline communication. Attention
    is cuDNN's, which Transformer Engine calls."""
    return replace(
        one,
        zero=1,
        recompute="none",
        sequence=True,
        fused_attention=True,
        kernel="cudnn",
        causal_half=True,
        overlap_data=True,
        overlap_tensor=True,
        overlap_pipeline=True,
    )


def mlperf() -> Iterator[Case]:
    """GPT-3 175B in MLPerf rounds of 2024 with degrees known, one row for each measured time. Products in fp8."""
    chunks = {row["system"]: int(row["INTERLEAVED_PIPELINE"] or 1) for row in _configs()}
    seen: set[str] = set()
    for row in rows("mlperf_training_v4.0-5.1"):
        time = row["median_step_time_s"]
        if row["benchmark"] != "gpt3" or not row["tp"] or not time or time in seen:
            continue
        seen.add(time)
        devices, tensor, pipeline = int(row["n_accelerators"]), int(row["tp"]), int(row["pp"])
        device = B200 if "B200" in row["accelerator"] else H100
        v = chunks.get(row["system"], 6)
        one = Configuration(
            batch=int(row["global_batch_size"]),
            micro_batch=2 if "mbs2" in row["config_files"] else 1,
            data=devices // (tensor * pipeline),
            tensor=tensor,
            pipeline=pipeline,
            chunks=v,
            schedule="interleaved" if v > 1 else "1f1b",
            dtype="float8_e4m3fn",
        )
        shape = Transformer(layers=96, hidden=12288, heads=96, seq=2048, vocab=51200)
        name = f"{devices} {device.split('-')[0]}, {row['mlperf_round']} {row['org']}"
        step = Step(shape, overlapped(one), eight_to_a_node(device, devices))
        yield Case(name, f"GPT-3, MLPerf, {device.split('-')[0]}", step, float(time))


def _configs() -> Iterator[dict[str, str]]:
    return (row for row in rows("mlperf_nvidia_llm_configs") if row["benchmark"] == "gpt3")


def selective() -> list[Case]:
    """The runs of Korthikanti et al. (2022), table 5: full recomputation, and selective with sequence parallelism."""
    found = []
    for row in rows("calculon_validation"):
        shape = Transformer(
            layers=int(row["num_blocks"]),
            hidden=int(row["hidden"]),
            heads=int(row["attn_heads"]),
            seq=int(row["seq_size"]),
            feedforward=int(row["feedforward"]),
        )
        chunks, part = int(row["interleave"]), row["recompute"] == "seqsel"
        one = Configuration(
            batch=int(row["global_batch"]),
            micro_batch=int(row["micro_batch"]),
            data=int(row["dp"]),
            tensor=int(row["tp"]),
            pipeline=int(row["pp"]),
            chunks=chunks,
            schedule="interleaved" if chunks > 1 else "1f1b",
            recompute="selective" if part else "full",
            sequence=part,
        )
        step = Step(shape, one, eight_to_a_node(A100, int(row["gpus"])))
        found.append(Case(f"{row['model']}, {one.recompute}", row["model"], step, float(row["measured_iter_s"])))
    return found


def measured_of(cases: Sequence[Case]) -> MeasuredSteps:
    """The cases as columns."""
    return measured([case.step for case in cases], [case.seconds * 1e9 for case in cases])
