"""What is taken for another tool's record of a step, and read as which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tensortide.errors import TraceError
from tensortide.graph import validate
from tensortide.importers.inductor import calls
from tensortide.importers.traces import is_recorded, read_recorded
from tensortide.timelines import liveness
from tests.importers.g10.example import write_trace
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT, trace


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


def test_a_kernel_trace_is_read_and_written_without_a_framework(tmp_path: Path) -> None:
    write_trace(tmp_path)
    code = (
        "import sys\n"
        "from tensortide.importers.traces import read_recorded\n"
        "from tensortide.reports.liveness_files import write_liveness_files\n"
        f"write_liveness_files(read_recorded({str(tmp_path)!r}), {str(tmp_path / 'out')!r}, 'run')\n"
        "print(sorted({'torch', 'pyarrow', 'matplotlib'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_dump_is_read_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, tensors and lives are the same; ops and arguments have names of their own."""
    known = trace(FORWARD, BACKWARD)
    calls._schema.cache_clear()
    monkeypatch.setattr(calls, "find_spec", lambda name: None)
    try:
        alone = trace(FORWARD, BACKWARD)
    finally:
        calls._schema.cache_clear()
    assert {op.name.split(".")[0] for op in alone.graph} == {"fx"}
    assert (alone.kernels, alone.tensors) == (known.kernels, known.tensors)
    assert alone.graph.storages == known.graph.storages
    assert liveness(alone.graph, "compat") == liveness(known.graph, "compat")
    validate(alone.graph)
