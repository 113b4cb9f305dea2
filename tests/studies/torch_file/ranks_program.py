"""One of two processes over gloo that train a wrapped model, for a written file applied before or after the wrapping.

    python ranks_program.py RANK STORE WRAP WHEN FILE

prints as JSON the most bytes that PyTorch's allocator had handed out in the second step, and digests of what the
parameters and the random generator are afterwards. WRAP: fully_shard or replicate. WHEN: never, before or after.
"""

from __future__ import annotations

import hashlib
import json
import runpy
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from tests.studies.torch_file.workloads import WIDTH, Step, Tower, peak_of

RANKS = 2


def wrapped(
    how: str, before: Callable[[nn.Module], Any], after: Callable[[nn.Module], Any], layers: int = 5
) -> tuple[nn.Module, Step]:
    """A model in this process's group and its step; it is changed before and after it is wrapped."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(0)
    model: nn.Module = Tower(layers)
    before(model)
    if how == "replicate":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        for block in [*model.get_submodule("blocks").children(), model]:
            fully_shard(block, mesh=mesh)
    after(model)
    torch.manual_seed(5 + dist.get_rank())
    x = torch.randn(256, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(x).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def run(how: str, when: str, file: str) -> dict[str, Any]:
    apply = runpy.run_path(file)["apply"] if when != "never" else None
    prefix = "module" if how == "replicate" and when == "before" else ""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        model, step = wrapped(
            how,
            lambda model: apply and when == "before" and apply(model, prefix),
            lambda model: apply and when == "after" and apply(model),
        )
        step()
        with record_function("second step"):
            step()
    state = hashlib.sha256()
    for value in (*model.parameters(), torch.get_rng_state()):
        own = value.to_local() if hasattr(value, "to_local") else value
        state.update(own.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return {"peak": peak_of(record), "state": state.hexdigest()}


if __name__ == "__main__":
    rank, store, *asked = sys.argv[1:]
    torch.set_num_threads(1)
    shared = dist.FileStore(store, RANKS)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=shared, rank=int(rank), world_size=RANKS)
    found = run(*asked)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    dist.barrier()
