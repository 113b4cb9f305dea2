"""Rows of modules of which each runs on the result of the one before, and checkpoints inside others."""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensortide.recorder.changes import Written
from tensortide.studies.torch_file.choice import Checkpoint, Choice, text
from tensortide.studies.torch_file.followed import followed
from tensortide.studies.torch_file.levels import Levels
from tensortide.studies.torch_file.regions import Modules
from tensortide.studies.torch_file.search import Search
from tensortide.timelines import timeline
from tests.studies.torch_file.files import captured, graph_of, made
from tests.studies.torch_file.test_files import assert_runs_as_said, forms
from tests.studies.torch_file.workloads import WIDTH, Listed

SMALL = {"blocks": 2, "size": 8}


@pytest.mark.parametrize("name", ["perceptron", "listed", "renamed"])
def test_modules_are_checkpointed_in_rows(name: str) -> None:
    found = made(name, 0.7)
    assert found.best is not None
    assert any(each.row for each in found.best.choice.checkpoints.values())
    assert not found.refused


@pytest.mark.slow
@pytest.mark.parametrize("form", ["checkpoints", "selective checkpoints"])
@pytest.mark.parametrize("name", ["perceptron", "listed", "renamed"])
def test_rows_run_as_said(name: str, form: str, tmp_path: Path) -> None:
    assert_runs_as_said(name, forms(made(name, 0.7))[form], tmp_path)


def test_rows_end_where_a_module_is_given_more_than_the_result_of_the_one_before() -> None:
    rows = [each.path for each in Modules(graph_of("residual", json.dumps(SMALL))).regions() if len(each.members) > 1]
    within = [path for path in rows if path.startswith("0.")]
    names = ["conv1", "bn1", "relu", "conv2", "bn2"]
    assert within == [
        f"0.{first} to 0.{last}"
        for place, first in enumerate(names)
        for last in names[place + 1 :]
        if first != "relu"  # which also runs elsewhere
    ]


def test_rows_end_where_the_program_keeps_a_result() -> None:
    regions = Modules(graph_of("listed", json.dumps({"layers": 2, "keeps": True}))).regions()
    rows = [each.members for each in regions if len(each.members) > 1]
    assert rows == [("layers.0", "layers.1"), ("layers.2", "layers.3")]


def test_a_file_takes_less_than_each_block_checkpointed_by_hand() -> None:
    by_hand = timeline(graph_of("residual", json.dumps({**SMALL, "by_hand": True}))).peak_bytes
    found = made("residual", 0.75, json.dumps(SMALL))
    assert found.budget_bytes < by_hand
    assert found.best is not None


@pytest.mark.slow
def test_rows_of_convolutions_run_as_said(tmp_path: Path) -> None:
    settings = {"blocks": 3, "size": 32}
    found = made("residual", 0.62, json.dumps(settings))
    assert found.best is not None
    assert_runs_as_said("residual", found.best, tmp_path, settings)


def test_checkpoints_inside_others_are_predicted_and_followed() -> None:
    settings = json.dumps(SMALL)
    graph = graph_of("residual", settings)
    modules = Modules(graph)
    paths = [f"{number}{row}" for row in (".conv1 to {0}.bn1", "") for number in range(2)]
    chosen = {path.format(path[0]): frozenset[int]() for path in paths}
    search = Search(Levels(graph, "cpu", [1] * len(graph)), modules, modules.regions(), 0, {})
    regions = {path: search.regions[path] for path in chosen}
    table = {
        path: Checkpoint(each.random, each.updated, row=each.members if len(each.members) > 1 else ())
        for path, each in regions.items()
    }
    again = captured("residual", settings, (Written(text(Choice(table), ""), ("",)),))
    ops = followed(graph, again, regions, chosen)
    assert not ops.changed
    assert timeline(again).peak_bytes == pytest.approx(search.score(chosen).peak_bytes, rel=0.01)
    assert max(Counter(ops.sequence).values()) == 3


def test_a_row_is_undone_and_runs_nowhere_but_in_its_order() -> None:
    model, x = Listed(1), torch.randn(4, WIDTH)
    plain = model(x)
    namespace: dict[str, Any] = {"__name__": "plan_torch"}
    row = Checkpoint(row=("layers.0", "layers.1"))
    exec(text(Choice({"layers.0 to layers.1": row}), "A file of a test."), namespace)
    applied = namespace["apply"](model)
    assert torch.equal(model(x), plain)
    with torch.no_grad():
        assert torch.equal(model.layers[0](x), nn.functional.linear(x, *model.layers[0].parameters()))
    with pytest.raises(TypeError, match="Linear, Tanh do not run one after the other"):
        model.layers[1](model.layers[0](x) + 1)
    assert torch.equal(model(x), plain)
    copied = copy.deepcopy(model)  # as of averaged parameters
    with torch.no_grad():
        weight, bias = copied.layers[0].parameters()
        weight.zero_()
        bias.fill_(1)
    assert torch.equal(copied(x), torch.full_like(x, 1).tanh().square().mean())
    assert torch.equal(model(x), plain)
    applied.remove()
    assert torch.equal(model.layers[0](x), nn.functional.linear(x, *model.layers[0].parameters()))
