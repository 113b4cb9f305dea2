"""What ``--machine`` takes of files: faults of a cluster, and its devices by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.targets.machines import cluster_in, device_named, machines_of, one_of, row_named

T4: dict[str, Any] = {"name": "a.json", "device": "t4"}
V100: dict[str, Any] = {"name": "b:1", "device": "v100-sxm-16gb"}


def written(folder: Path, content: object, name: str = "box.json") -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize("read", [cluster_in, device_named, machines_of, one_of])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"devices": [{"device": "t4", "device": "h100"}]}', "box.json: 'device' stands twice in one object"),
        ({"devices": [{**T4, "memory": 1}]}, r"box.json, devices\[0\]: unknown key 'memory'"),
        ({"links": []}, "box.json: .*missing required field `devices`"),
        ({"devices": [{**T4, "device": "box.json"}]}, r"devices\[0\]: .*box.json is a cluster: a device is a name"),
        ("{", "box.json: not a machine in JSON"),
    ],
)
def test_a_cluster_that_is_wrong_says_its_fault_wherever_it_is_read(
    read: Callable[[str], object], content: object, message: str, tmp_path: Path
) -> None:
    with pytest.raises(TensortideError, match=message) as error:
        read(written(tmp_path, content))
    assert "a device has no" not in str(error.value)


def test_a_device_is_named_behind_the_file_whatever_it_is_called(tmp_path: Path) -> None:
    box = written(tmp_path, {"devices": [T4, V100]})
    assert [device_named(f"{box}:{name}").name for name in ("a.json", "b:1")] == ["T4", "V100-SXM-16GB"]
    assert machines_of(f"{box}:a.json").device.name == "T4"
    assert one_of(f"{box}:b:1") == f"{box}:b:1"
    with pytest.raises(TensortideError, match=r"name one of its devices, as .*box.json:a.json; they are a.json, b:1"):
        device_named(f"{box}:")


def test_a_file_of_figures_is_the_device_of_a_cluster(tmp_path: Path) -> None:
    figures = {"name": "mine", "fp32_tflops": 1.5, "memory_gbytes": 2.0, "memory_gbytes_per_s": 30.0}
    mine = written(tmp_path, figures, "mine.json")
    assert row_named(mine).name == machines_of(mine).device.name == "mine"
    assert cluster_in(mine) is None
    assert cluster_in("t4") is None
