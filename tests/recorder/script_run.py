"""Scripts, run under tensortide in forks of a process that has imported what takes seconds."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tensortide.executors.forks import prepared
from tensortide.graph import Graph, load
from tensortide.recorder.messages import Messages
from tensortide.recorder.script import ScriptOptions
from tensortide.recorder.script_launch import place_of
from tests.recorder.forked_script import run_in

TRAIN = """
import argparse, atexit, dataclasses, pickle, sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from helper import Squares

@dataclasses.dataclass
class Config:
    width: int

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    config = parser.parse_args()
    assert pickle.loads(pickle.dumps(Config(config.width))).width == config.width
    log = open("log.txt", "w")
    model = nn.Sequential(nn.Linear(4, config.width), nn.ReLU(), nn.Linear(config.width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for epoch in range(3):
        for x, y in DataLoader(Squares(), batch_size=8, num_workers=config.workers):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            print("step", file=log)
        scheduler.step()
    print("finished", file=log)

if __name__ == "__main__":
    print("argv", sys.argv[1:])
    atexit.register(lambda: open("exit.txt", "w").write(sys.argv[0]))
    main()
"""
HELPER = """
import torch
class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        x = torch.arange(4) + float(i)
        return x, x.square().sum().reshape(1)
"""
LOOP = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(5):
    {body}
"""
STEP = "model(torch.ones(2, 4)).sum().backward(); optimizer.step(); optimizer.zero_grad()"


SECOND = ScriptOptions()


class Ran(NamedTuple):
    """Exit status, outcome and graph of a script, and what it wrote to standard error."""

    status: int
    outcome: dict[str, Any]
    graph: Graph | None
    err: str


def forked(
    folder: Path, *command: str, kind: str = "file", options: ScriptOptions = SECOND, moved: bool = False
) -> Ran:
    """Run a script in a fork of a process that has imported what takes seconds, and done nothing else."""
    files = {"graph": "step.tide", "outcome": "outcome.json", "progress": "progress", "messages": "messages"}
    (own := folder / "run").mkdir(exist_ok=True)
    Messages().save(own / "messages")
    places = {**{name: str(own / file) for name, file in files.items()}, "name": command[0]}
    asked = {**asdict(options), "place": place_of(options.ranks, options.rank or 0), "moved": moved}
    child = prepared(run_in, folder, {**places, **asked}, kind, command)
    child.daemon = False  # it may have workers
    child.start()
    child.join(600)
    child.kill()
    child.join()
    outcome, graph = own / "outcome.json", own / "step.tide"
    assert child.exitcode is not None
    return Ran(
        child.exitcode,
        json.loads(outcome.read_text()) if outcome.exists() else {},
        load(graph) if graph.exists() else None,
        (folder / "err.txt").read_text(),
    )


def loop(folder: Path, body: str = STEP) -> str:
    (folder / "loop.py").write_text(LOOP.format(body=textwrap.indent(textwrap.dedent(body), "    ").strip()))
    return "loop.py"
