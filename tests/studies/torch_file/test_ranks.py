"""Written files for models wrapped for several processes: their promise is that of a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tensortide.graph.effects import runs_once
from tensortide.plans.remat.schedule import recorded
from tensortide.studies.torch_file import Asked, TorchFile, make
from tensortide.studies.torch_file.regions import Modules
from tensortide.timing import device, estimate
from tests.studies.torch_file import ranks_program
from tests.studies.torch_file.files import nothing
from tests.studies.torch_file.ranks_program import RANKS, wrapped
from tests.studies.torch_file.workloads import Block, Tower

WRAPS = ("fully_shard", "replicate")


def parameter_bytes(module: nn.Module) -> int:
    return 4 * sum(parameter.numel() for parameter in module.parameters())


HELD = {"fully_shard": 2 * parameter_bytes(Block()), "replicate": parameter_bytes(Tower(5))}
"""Bytes that threads of gloo may hold a little longer: two gathered blocks, or the buckets of all gradients."""
pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
]


@cache
def made_for(how: str) -> TorchFile:
    again = partial(capture, lambda: wrapped(how, id, id)[1], ranks=RANKS, name="tower")
    graph = again()
    recording = recorded(graph, estimate(graph, device("A100-SXM-80GB")).ns)
    return make(Asked(recording, nothing(graph, 0.8), lambda changes: again(changes=changes)))


def run_on_ranks(folder: Path, *asked: str) -> list[dict[str, Any]]:
    """What each of the processes prints."""
    store = folder / "-".join(asked[:2])
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    started = [
        subprocess.Popen(
            [sys.executable, ranks_program.__file__, str(rank), str(store), *asked],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        for rank in range(RANKS)
    ]
    said = [each.communicate(timeout=300)[0] for each in started]
    return [json.loads(next(line for line in text.splitlines() if line.startswith("{"))) for text in said]


@pytest.mark.slow
@pytest.mark.parametrize("how", WRAPS)
def test_blocks_that_are_wrapped_are_checkpointed_and_run_as_said(how: str, tmp_path: Path) -> None:
    found = made_for(how)
    assert found.best is not None
    prefix = "module." if how == "replicate" else ""
    assert all(path.startswith(f"{prefix}blocks.") for path in found.best.choice.checkpoints)
    assert f"one of {RANKS} processes" in " ".join(found.text.split())
    file = tmp_path / "plan_torch.py"
    file.write_text(found.text)
    plain = run_on_ranks(tmp_path, how, "never", str(file))
    for when in ("before", "after"):
        mine = run_on_ranks(tmp_path, how, when, str(file))
        assert [each["state"] for each in mine] == [each["state"] for each in plain]
        assert found.best.peak_bytes is not None
        assert max(each["peak"] for each in mine) <= found.best.peak_bytes + HELD[how]
        assert found.best.peak_bytes < min(each["peak"] for each in plain)


def test_what_a_hook_gathers_before_a_module_is_not_recomputed() -> None:
    graph = capture(lambda: wrapped("fully_shard", id, id, layers=1)[1], ranks=RANKS)
    (block,) = (each for each in Modules(graph).regions() if each.path == "blocks.0")
    assert block.calls[0].gathered
    assert not any(runs_once(graph.calls[graph.ops[op].call]) for op in block.ops)
