"""Values that other ranks send are not known, and decide what a script does as an assumption."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tensortide.recorder.script import ScriptOptions
from tests.recorder.script_run import Ran, forked

RANKS = 4


def trained(folder: Path, body: str, rank: int = 0) -> Ran:
    """A script with ``body`` in its training step, as one of four ranks."""
    text = """
        import torch
        import torch.distributed as dist
        from torch.distributed._functional_collectives import all_to_all_single
        dist.init_process_group("gloo")
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(3):
            loss = model(torch.ones(16, 8)).sum()
    """
    step = f"{body}\nloss.backward()\noptimizer.step()\n"
    (folder / "train.py").write_text(textwrap.dedent(text) + textwrap.indent(textwrap.dedent(step), "    "))
    return forked(folder, "train.py", options=ScriptOptions(fake=True, ranks=RANKS, rank=rank))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_takes_no_part_in_a_decision_is_told_it(rank: int, tmp_path: Path) -> None:
    body = """\
        flag = torch.tensor([1 if dist.get_rank() == 0 else 0])
        dist.broadcast(flag, 0)
        if flag.item():
            loss = loss * 2"""
    ran = trained(tmp_path, textwrap.dedent(body), rank)
    assert ran.graph is not None, ran.err + str(ran.outcome)
    assert "aten.mul.Tensor" in {op.name for op in ran.graph}
    assert any("flag.item()" in said for said in ran.graph.meta.assumptions) == (rank == 1)


def test_tokens_are_sent_to_experts_as_if_they_were_spread_evenly(tmp_path: Path) -> None:
    """Counts of tokens are read for the sizes of an exchange. Other ranks are taken to count the same."""
    body = """\
        chosen = model(torch.ones(16, 8)).topk(2).indices.flatten()
        counts = torch.histc(chosen.float(), bins=4, min=0, max=4).long()
        sent = counts.tolist()
        received = all_to_all_single(counts, None, None, dist.group.WORLD).tolist()
        tokens = torch.ones(32, 8)[chosen.argsort()]
        assert all_to_all_single(tokens, received, sent, dist.group.WORLD).shape == (32, 8)"""
    ran = trained(tmp_path, textwrap.dedent(body))
    assert ran.graph is not None, ran.err + str(ran.outcome)
    assert "counts.tolist() taken as 8" in " ".join(ran.graph.meta.assumptions)
