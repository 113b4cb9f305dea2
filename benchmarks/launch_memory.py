"""Memory of whole launches, against what their authors measured.

    python benchmarks/launch_memory.py [--write] [LAUNCH ...]

Launches of torchtitan (Llama 3.1 on H100s) are captured unmodified, as rank 0 of their ranks on a machine without a
GPU, and their allocator is replayed with a pool for each stream. Published is the most that any GPU reserved (aims:
within 5 %, and never 5 % under). *One pool* is what an allocator with one pool for all streams would reserve. The
stacks are those of `make test-launches`; version 0.2.2 of torchtitan stands for the older ones that were measured.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness
from msgspec.structs import replace

from tensortide import timeline
from tensortide.graph import load
from tensortide.memory import reserve

SITE = harness.ROOT / ".launches" / "site"
REFERENCE = Path(os.environ.get("TENSORTIDE_REFERENCE", harness.ROOT.parent / "shared" / "reference"))
SELECTIVE = "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op"
SMALL = f"--model.flavor 8B --training.local_batch_size 2 --training.seq_len 8192 {SELECTIVE}"
LARGE = (
    "--model.flavor 70B --training.local_batch_size 16 --training.seq_len 8192"
    " --parallelism.tensor_parallel_degree 8 --activation_checkpoint.mode full"
)
CASES = {
    "L001": (8, SMALL),
    "L004": (128, SMALL),
    "L005": (128, f"{SMALL} --compile.enable"),
    "L011": (256, LARGE),
}
"""Ranks and options of launches, by their number in ``launches.csv``; L011 is without float8 and compilation."""
LIMIT_S = 590


def captured(ranks: int, options: str) -> dict[str, Any]:
    """Capture a launch and replay its allocator."""
    from tests.launches.test_stacks import text_and_tokenizer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text_and_tokenizer(folder)
        own = [
            sys.executable,
            "-m",
            "tensortide",
            "capture",
            "-o",
            "step.tide",
            "--machine",
            "h100",
            "--ranks",
            str(ranks),
        ]
        assets = [
            "--model.hf_assets_path",
            name,
            "--training.dataset",
            "c4_test",
            "--training.dataset_path",
            f"{name}/text",
        ]
        script = [sys.executable, str(SITE / "torchtitan" / "train.py"), "--model.name", "llama3"]
        paths = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(SITE)])
        try:
            subprocess.run(
                [*own, "--", *script, *assets, *options.split()],
                check=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths},
                stdout=subprocess.DEVNULL,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"its capture took over {LIMIT_S} s") from None
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"its capture ended with status {error.returncode}") from None
        graph = load(folder / "step.tide")
    together = replace(graph, storages=tuple(replace(storage, stream=0) for storage in graph.storages))
    return {
        "ops": len(graph),
        "allocated": timeline(graph).peak_bytes / 2**30,
        "predicted": reserve(graph).peak_reserved / 2**30,
        "together": reserve(together).peak_reserved / 2**30,
    }


def measure(run: harness.Run) -> None:
    columns = {
        "launch": "{case}",
        "model": "{model}",
        "ranks": "{ranks:d}",
        "published, GiB": "{published:.1f}",
        "predicted": "{predicted:.1f}",
        "off": "{off:+.1%}",
        "one pool": "{together:.1f}",
        "tensors": "{allocated:.1f}",
        "remark": "{remark}",
    }
    table = run.table(columns, ("case",))
    file = REFERENCE / "launches" / "launches.csv"
    rows = {row["id"]: row for row in csv.DictReader(file.read_text("utf-8").splitlines())} if file.is_file() else {}
    for case, (ranks, options) in run.cases(CASES).items():
        known = rows.get(case, {})
        row: dict[str, Any] = {"case": case, "ranks": ranks, "model": known.get("model", ""), "remark": ""}
        if known:
            row["published"] = float(known["memory_gib"])
        if not SITE.is_dir():
            row["remark"] = "not captured: make test-launches installs the stacks"
        else:
            try:
                row |= run.child(captured, ranks, options)
            except harness.ChildFailed as error:
                row["remark"] = f"not captured: {error}"
        if known and "predicted" in row:
            row["off"] = row["predicted"] / row["published"] - 1
        table.add(row)


if __name__ == "__main__":
    harness.main(__doc__, measure)
