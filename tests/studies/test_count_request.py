"""What ``count`` and ``memory`` answer, asked in Python."""

from __future__ import annotations

import pytest

from tensortide.cost import Count, count
from tensortide.errors import RequestError
from tensortide.recorder import resolver
from tensortide.studies.count_request import CountRequest, Explained, Tabulated, Unknown
from tensortide.studies.count_request import answer as counted
from tensortide.studies.memory_request import IdleRequest, MemoryRequest, StepMemory
from tensortide.studies.memory_request import answer as memory
from tensortide.targets.requests import CaptureRequest, TimedRequest
from tensortide.timing import LINKS, link
from tests.graphs import files

GPT2 = str(files.path_of("gpt2_cpu"))


def test_each_question_has_an_answer_of_its_own() -> None:
    graph = files.stored("gpt2_cpu")
    found = counted(CountRequest(target=GPT2))
    assert isinstance(found, Count)
    assert found.total == count(graph, resolver=resolver).total
    rule = counted(CountRequest(target=GPT2, explain="addmm"))
    assert isinstance(rule, Explained)
    assert rule.rule.rule == "aten::addmm"
    unknown = counted(CountRequest(target=GPT2, missing=True))
    assert isinstance(unknown, Unknown)
    assert not unknown.rules
    assert unknown.coverage.covered == unknown.coverage.ops > 0
    table = counted(CountRequest(target=GPT2, ops=True))
    assert isinstance(table, Tabulated)
    assert len(table.table.rows) == len(graph)  # type: ignore[union-attr] # it is no comparison


def test_options_that_do_not_go_together_are_refused_before_anything_is_read() -> None:
    with pytest.raises(RequestError, match="--explain and --missing exclude each other"):
        CountRequest(target="missing.tide", explain="mm", missing=True)
    with pytest.raises(RequestError, match="--mode goes with --idle"):
        IdleRequest(mode="compat")


def test_memory_is_a_step_or_its_idle_intervals() -> None:
    found = memory(MemoryRequest(target=GPT2))
    assert isinstance(found, StepMemory)
    assert found.step.durations is not None
    compared = IdleRequest(idle=True, link="25GB/s", compare=GPT2)  # type: ignore[arg-type] # a text is read
    assert compared.link == link("25GB/s") != IdleRequest().link == LINKS["pcie4"]
    step = TimedRequest(capture=CaptureRequest(machines=("h100-sxm",)))
    each = memory(MemoryRequest(target=GPT2, idle=compared, step=step))
    assert isinstance(each, list)
    assert "H100" in each[0].durations
    assert "A100" in each[1].durations
    with pytest.raises(RequestError, match="is no memory snapshot: --against goes with one"):
        memory(MemoryRequest(target=GPT2, against=GPT2))
