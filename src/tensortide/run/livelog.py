"""A live run as a DTR log: what existed, every op with its first duration, and when memory was dropped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tensortide.graph.model import Call, Graph, Meta, Op, Phase, Role, Storage
from tensortide.importers.dtrlog.write import write_log
from tensortide.plans.remat.schedule import CONSTANT
from tensortide.recorder.recorder import RawOp, Recorder
from tensortide.recorder.schema import schema_of
from tensortide.run.operators import Operator
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.run.runtime import Runtime


class LiveLog(Recorder):
    """Records the ops that ``runtime`` runs, until it is written to ``path``.

    What is in memory when it begins is a constant there, and so is what comes from outside later, from its first use
    on. Raises OutputError for a path that cannot be written.
    """

    def __init__(self, runtime: Runtime, path: str | os.PathLike[str]) -> None:
        super().__init__(lambda index: Phase.FORWARD if torch._C._current_graph_task_id() < 0 else Phase.BACKWARD)
        self.path = check_writable(path)
        self.durations_ns: list[int] = []
        self._runtime = runtime
        self._action: Callable[..., Any] | None = None
        self._operator: Operator | None = None
        self.calls.append(Call("dtr.constant", tags=(CONSTANT,)))
        runtime.promote()
        for value in list(runtime.known.values()):
            handle = value.block()
            if handle is not None:  # its bytes may be away
                self._add_storage(handle, value.block.key, value.block.nbytes, str(handle.device))

    def around(
        self, action: Callable[..., Any], operator: Operator, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        self._action, self._operator = action, operator
        return self.record(operator.func, schema_of(operator.func), args, kwargs)

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        assert self._action is not None
        engine = self._runtime.engine
        before_ns = engine.base_ns
        result = self._action(self._operator, args, kwargs)
        self.durations_ns.append(engine.base_ns - before_ns)
        return result

    def _add_storage(self, handle: Any, key: int, nbytes: int, device: str) -> int:
        if self._now is not None:
            return super()._add_storage(handle, key, nbytes, device)
        self._now = len(self.ops)  # nothing made it: it is there from here on
        self.ops.append(RawOp(0, [], [], Phase.FORWARD))
        self.durations_ns.append(0)
        try:
            return super()._add_storage(handle, key, nbytes, device)
        finally:
            self._now = None

    def write(self) -> Path:
        """Write the log. Raises OutputError."""
        graph = Graph(
            ops=tuple(Op(raw.call, tuple(raw.inputs), tuple(raw.outputs), raw.context) for raw in self.ops),
            calls=tuple(self.calls),
            tensors=tuple(self.tensors),
            storages=tuple(
                Storage(self._counted(raw.nbytes, raw.device), raw.device, Role.ACTIVATION, raw.birth, raw.death)
                for raw in self.storages
            ),
            meta=Meta(captured_on="real"),
        )
        return write_log(graph, self.durations_ns, self.path)

    def _counted(self, nbytes: int, device: str) -> int:
        """The log has the memory of one device."""
        return nbytes if torch.device(device) == self._runtime.device else 0
