"""Tables of time models and of collective algorithms: every file has a row, every prediction is one of a row."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensortide.timing import catalogue, device, models
from tensortide.timing.collectives.bound import ALGORITHMS
from tensortide.timing.collectives.hierarchy import WAYS
from tensortide.timing.collectives.kinds import KINDS
from tensortide.timing.local import of
from tensortide.timing.models import MODELS
from tensortide.timing.predict import predict
from tensortide.timing.work import Work, elementwise, product
from tests.timing.test_calibration import calibration


def test_every_file_of_the_folder_is_a_model_or_a_part_of_one() -> None:
    files = {path.stem for path in Path(models.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {name for row in MODELS for name in (row.file, *row.parts)}
    assert len({row.file for row in MODELS}) == len(MODELS)


@pytest.mark.parametrize("name", ["H100-SXM-80GB", "V100-PCIe-32GB", "TPU v4", "calibrated"])
def test_every_prediction_is_by_one_model_of_the_table(name: str) -> None:
    on = of(calibration()) if name == "calibrated" else device(name)
    asked = [
        product(64, 64, 64),
        product(64, 64, 64, dtype="bfloat16"),
        elementwise(64, 64),
        Work("sort", read_bytes=8),
    ]
    asked += [product(64, 64, 64, family="convolution_1x1")]
    for found in predict(asked, on):
        assert sum(found.model.startswith(row.marks) for row in MODELS) == 1, found.model
    assert on.kind != "gpu" or on in catalogue()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_has_an_algorithm_and_a_way_through_any_group(kind: Any) -> None:
    assert len({row.name for row in ALGORITHMS}) == len(ALGORITHMS)
    for ranks in (2, 3, 8, 100):
        for row in (row for row in ALGORITHMS if row.serves(kind, ranks)):
            assert row.steps(kind, ranks) >= 1
            assert row.volume(kind, ranks) > 0
        assert any(row.serves(kind, ranks) for row in ALGORITHMS)
    for local, even in ((1, True), (8, True), (8, False)):
        group: Any = SimpleNamespace(local=local, even=even)
        assert any(serves(kind, group) for serves, _ in WAYS)
