"""Tables of time models and of collective algorithms: every file has a row, every prediction is one of a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.graph.collectives import COLLECTIVES, Algorithm, Collective, Held
from tensortide.timing import catalogue, device, ladder
from tensortide.timing.collectives import nodes_of, predict_collective
from tensortide.timing.collectives.bound import bound
from tensortide.timing.collectives.hierarchy import WAYS
from tensortide.timing.estimates import Provenance
from tensortide.timing.ladder import LADDER, Rung
from tensortide.timing.local import of
from tensortide.timing.predict import predict
from tensortide.timing.rates import columns
from tensortide.timing.work import Work, elementwise, product
from tests.timing.test_calibration import calibration

ASKED = [
    product(64, 64, 64),
    product(64, 64, 64, dtype="bfloat16"),
    elementwise(64, 64),
    Work("sort", read_bytes=8),
    product(64, 64, 64, family="convolution_1x1"),
    product(512, 512, 64, dtype="bfloat16", family="attention_backward")._replace(kernel="flash2"),
]


@pytest.mark.parametrize("name", ["H100-SXM-80GB", "V100-PCIe-32GB", "TPU v4", "calibrated"])
def test_every_prediction_is_by_the_first_rung_that_serves_it(name: str) -> None:
    on = of(calibration()) if name == "calibrated" else device(name)
    table = columns(ASKED, on)
    serving = [[rung for rung, marks in zip(LADDER, served, strict=True) if marks] for served in
               zip(*(rung.serves(table) for rung in LADDER), strict=True)]  # fmt: skip
    assert [found.model for found in predict(ASKED, on)] == [
        rungs[0].mark(work.family) for work, rungs in zip(ASKED, serving, strict=True)
    ]
    assert on.kind != "gpu" or on in catalogue()


def test_every_rung_predicts_something() -> None:
    devices = [of(calibration()), device("V100-PCIe-32GB"), device("H100-SXM-80GB"), device("TPU v4")]
    marks = {found.model for on in devices for found in predict(ASKED, on)}
    for rung in LADDER:
        assert marks & {rung.mark(work.family) for work in ASKED}, rung.name
    assert len({rung.name for rung in LADDER}) == len(LADDER)


def test_a_rung_of_ones_own_above_the_others_predicts_what_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Rung("own", lambda table: table.nbytes < 100, lambda table: 0 * table.nbytes + 77.0, lambda family: "own")
    monkeypatch.setattr(ladder, "LADDER", (own, *LADDER))
    models = [found.model for found in predict(ASKED, device("H100-SXM-80GB"))]
    assert models.count("own") == sum(work.nbytes < 100 for work in ASKED) == 1
    assert predict(ASKED, device("H100-SXM-80GB"))[3].ns == 77.0


@pytest.mark.parametrize("kind", COLLECTIVES.values(), ids=lambda kind: kind.name)
def test_every_kind_has_an_algorithm_and_a_way_through_any_group(kind: Any) -> None:
    for ranks in (2, 3, 8, 100):
        fastest = bound(kind, ranks, 2**20, 100.0, 1000)
        assert fastest.algorithm in {row.name for row in kind.algorithms if not row.symmetric}
        assert fastest.ns > 0
    for local, even in ((1, True), (8, True), (8, False)):
        group: Any = SimpleNamespace(local=local, even=even)
        assert any(serves(kind, group) for serves, _ in WAYS)


def test_a_new_collective_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction to every second rank, say: found, padded, bounded, timed within a node and between nodes."""
    half = Algorithm("direct", lambda ranks: (ranks - 1) / 2, lambda ranks: 3)
    row = Collective("reduce_to_half", Held.OWN, Held.PART, (half,), like="reduce_scatter")
    monkeypatch.setitem(COLLECTIVES, row.name, row)
    where = nodes_of("H100-SXM-80GB", nodes=2)
    alone, across = (predict_collective("reduce_to_half", 2**24, ranks, where) for ranks in (8, 16))
    assert alone.ns > half.sent(8) * 2**24 / 450
    assert across.ns > alone.ns
    assert alone.provenance is Provenance.EXTRAPOLATED
    assert bound(row, 8, 2**24, 100.0, 1000) == (3000 + 3.5 * 2**24 / 100, "direct")
    with pytest.raises(TensortideError, match="8 ranks do not divide them evenly"):
        predict_collective("reduce_to_half", 2**24 + 1, 8, where)
