"""The states of docs/live.md, and the files that know them."""

from __future__ import annotations

from pathlib import Path

import torch

from tensortide.run.block import PENDING, Block, storage_of
from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED

ROOT = Path(__file__).parents[2]


def test_a_tensor_goes_through_its_states() -> None:
    x = torch.rand(1024)
    with Budget(UNLIMITED, device="cpu") as budget:
        runtime = budget.runtime
        assert runtime is not None
        engine = runtime.engine

        def block(tensor: torch.Tensor) -> Block:
            return runtime.known[storage_of(tensor)._cdata].block

        assert engine.fixed[block(x).storage]
        y = x.sin()
        assert block(y).storage == PENDING
        assert runtime.known[storage_of(y)._cdata].call is not None

        runtime.promote()
        storage = block(y).storage
        assert storage in engine.pool  # resident
        frame = engine.prepare([engine.newest(storage)], (), 0)
        assert storage not in engine.pool  # locked
        assert engine.locks[storage] == 1
        engine.abandon(frame)

        engine.evict(storage)
        assert not engine.resident[storage]
        assert storage_of(y).nbytes() == 0
        torch.add(y, 0)
        assert storage_of(y).nbytes() == y.nbytes
        assert budget.usage.recomputations == 1

        address = y.data_ptr()
        assert engine.fixed[storage]  # exposed
        assert storage_of(y)._cdata in runtime.storages.shared
        assert address == y.data_ptr()

        z = x.cos().exp()
        made, given = runtime.storage(z), block(x).storage
        del x
        runtime.promote()
        assert given in engine.waiting
        assert engine.resident[given]
        del z
        runtime.promote()
        assert given not in engine.waiting
        assert engine.dead[given]
        assert engine.dead[made]


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs" / "live.md").read_text("utf-8")
    folder = ROOT / "src" / "tensortide" / "run"
    names = sorted(path.name for path in folder.glob("*.py") if not path.name.startswith("__"))
    assert [name for name in names if f"`{name}`" not in page] == []
