"""What is taken for another tool's record of a step, and read as which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.capture.traces import is_recorded, read_recorded
from tensortide.errors import TraceError
from tests.capture.g10.example import write_trace
from tests.capture.inductor.dumps import BACKWARD, FORWARD, WEIGHT


def test_traces_and_dumps(tmp_path: Path) -> None:
    texts = {"forward": FORWARD, "backward": BACKWARD, "weight": WEIGHT}
    forward, backward, weight = (tmp_path / f"fx_graph_transformed_{name}.py" for name in texts)
    for path, text in zip((forward, backward, weight), texts.values(), strict=True):
        path.write_text(text)
    assert is_recorded(forward)
    assert not is_recorded("train.py:main")
    assert not is_recorded(tmp_path / "model.py")
    assert len(read_recorded(tmp_path).graph) == 19
    assert len(read_recorded(forward).graph) == 5
    assert len(read_recorded(forward, backward=backward).graph) == 12
    with pytest.raises(TraceError, match="name the dump of the forward graph too"):
        read_recorded(tmp_path, backward=backward)
    traces = tmp_path / "trace"
    traces.mkdir()
    write_trace(traces)
    assert len(read_recorded(traces).graph) == 5
    with pytest.raises(TraceError, match="is a kernel trace: backward and optimizer graphs and symbols go with a dump"):
        read_recorded(traces, bind={"s0": 1})
