"""Files to try placement on can be read, and leave something to search."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tensortide.cli import main
from tensortide.placements import NetProblem, Settings, read_net
from tensortide.placements.graphs import load_cluster
from tensortide.placements.search import algorithm
from tensortide.studies.placement.config import read_config
from tensortide.studies.placement.examples import examples
from tests.cli.command import run


def written(folder: Path) -> Path:
    for one in examples():
        (folder / one.file).write_text(one.text)
    return folder


def test_the_network_is_resnet_50(tmp_path: Path) -> None:
    """Convolutions, sums and the products of its forward pass: the published 3.8 G multiplications for an image."""
    net = read_net(written(tmp_path) / "resnet50.json")
    kinds = [net.entries[name].type for name in net.order]
    assert (kinds.count("Convolution"), kinds.count("Elementwise")) == (53, 16)
    assert net.batch() == 128
    shapes = dict(zip(net.order, net.layers(), strict=True))
    assert shapes["stage1.0.add"].output == (128, 56, 56, 256)
    assert shapes["stage4.2.add"].output == (128, 7, 7, 2048)
    macs = 0
    for name, layer in shapes.items():
        size, *_ = net.entries[name].filter or (1,)
        if net.entries[name].type in ("Convolution", "InnerProduct"):
            macs += size * size * layer.inputs[0][-1] * math.prod(layer.output[1:])
    assert macs == pytest.approx(3.8e9, rel=0.02)


def test_no_single_gpu_has_the_memory(tmp_path: Path) -> None:
    folder = written(tmp_path)
    settings = Settings(batch_size=128)
    problem = NetProblem(read_net(folder / "resnet50.json"), load_cluster(folder / "server.json"), settings)
    gpus = [number for number, device in enumerate(problem.cluster.devices) if device.row.kind == "gpu"]
    alone = np.repeat(np.array(gpus)[:, None], len(problem.names), axis=1)
    assert len(gpus) == 4
    assert (problem.evaluate(alone)[1] > 0).all()
    found = algorithm("best").search(problem, budget=50, seed=0)
    assert not found.over_bytes
    assert len(set(found.placement)) > 1


def test_the_other_files_can_be_read(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert [device.name for device in load_cluster(folder / "cluster.json").devices] == [
        *("cpu", "gpu0", "gpu1", "gpu2", "gpu3")
    ]
    assert read_config(folder / "config.json").optimizer == "map_elites"


def test_the_verb_writes_them_and_replaces_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "try"
    said = run(capsys, "place", "examples", "--out", folder)
    assert {path.name for path in folder.iterdir()} == {one.file for one in examples()}
    assert all(one.file in said for one in examples())
    with pytest.raises(SystemExit, match="2"):
        main(["place", "examples", "--out", str(folder)])
    assert "resnet50.json exists" in capsys.readouterr().err
