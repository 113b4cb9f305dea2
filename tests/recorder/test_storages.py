"""Tensors that a program makes of storages, as it loads checkpoints lazily, are fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.torch_compat import FakeTensor


def rebuilt(storage: torch.UntypedStorage, offset: int = 0) -> torch.Tensor:
    typed = torch.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
    made: torch.Tensor = torch._utils._rebuild_tensor_v2(typed, offset, (2, 2), (2, 1), False, {})
    return made


def test_tensors_of_one_storage_share_it_and_it_goes_with_them() -> None:
    with StepFakeMode({}):
        storage = torch.UntypedStorage(32)
        first, second, other = rebuilt(storage), rebuilt(storage, 4), rebuilt(torch.UntypedStorage(16))
        assert all(isinstance(each, FakeTensor) and each.device.type == "cpu" for each in (first, second, other))
        assert first.untyped_storage()._cdata == second.untyped_storage()._cdata != other.untyped_storage()._cdata
        assert (first.untyped_storage().nbytes(), other.untyped_storage().nbytes()) == (32, 16)
        left = torch.multiprocessing.reductions.StorageWeakRef(first.untyped_storage())
        del first, second
        assert left.expired()


def test_a_record_of_a_checkpoint_is_read_lazily(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, 2)}, tmp_path / "a.pt")
    with StepFakeMode({}):
        reader: Any = torch._C.PyTorchFileReader(str(tmp_path / "a.pt"))
        record = reader.get_storage_from_record("data/0", 16, torch.UntypedStorage)
        assert rebuilt(record._typed_storage()._untyped_storage).shape == (2, 2)


def test_a_file_of_safetensors_is_opened(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("safetensors.torch").save_file({"w": torch.ones(3, 2)}, tmp_path / "a.safetensors")
    with StepFakeMode({}), safetensors.safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        assert isinstance(file.get_tensor("w"), FakeTensor)
        assert file.get_slice("w")[:1].shape == (1, 2)
