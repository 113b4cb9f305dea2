"""The process of a training script, which runs as ``__main__`` until one of its training steps has been recorded."""

from __future__ import annotations

import _thread
import contextlib
import faulthandler
import functools
import importlib.util
import io
import json
import linecache
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from tensortide.errors import DataDependent, ExitStatus, TensortideError, status_of
from tensortide.graph import save
from tensortide.graph.model import Graph, Role
from tensortide.recorder.building import compiled_step
from tensortide.recorder.code_paths import is_internal
from tensortide.recorder.control_flow import followed
from tensortide.recorder.cuda_mode import CudaFakeMode, pretended_gpu
from tensortide.recorder.failure import explained
from tensortide.recorder.fake_mode import StepFakeMode, same_paths
from tensortide.recorder.idle import ASKED
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.messages import Messages
from tensortide.recorder.not_reached import times
from tensortide.recorder.program_errors import of_program
from tensortide.recorder.ranks import as_rank
from tensortide.recorder.readings import ReadSite
from tensortide.recorder.recorder import TooManyOps
from tensortide.recorder.recording import Recording
from tensortide.recorder.remedies import FAKE_SCRIPT
from tensortide.recorder.script_launch import Place
from tensortide.recorder.second_run import SecondRun, folders_made, kept_apart
from tensortide.recorder.standins import fakes, loaders
from tensortide.recorder.surroundings import replaced, undisturbed
from tensortide.recorder.trials import Trial
from tensortide.recorder.values import Trying

_RAISES = 3
"""Most requests to stop that a script may catch; then its process exits at once."""
_ALIVE_S = 0.2
"""Seconds from one report to the parent process to the next."""


def _mode(request: dict[str, Any]) -> StepFakeMode | None:
    gpu = pretended_gpu(request["device"], request["machine"], request["real"] or None)
    mode: StepFakeMode | None = None
    if gpu is not None:
        mode = CudaFakeMode(gpu, request["assume"], script=True)
    elif request["fake"]:
        mode = StepFakeMode(request["assume"], FAKE_SCRIPT)
    return mode


def _trial(request: dict[str, Any]) -> Trial | None:
    given = request.get("trial")
    if given is None:
        return None
    return Trial(frozenset(ReadSite(*each) for each in given["places"]), given["how"], given["mild"])


class _Script:
    """A request to record a step, and its outcome."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.outcome: dict[str, Any] = {}
        self._trial = _trial(request)
        self._trying: Trying | None = None
        self._apart: SecondRun | None = None
        self._made: list[str] = []
        self._messages = Messages()
        self._messages.update(Path(request["messages"]))
        self.recording = Recording(
            request["step"],
            name=request["name"],
            mode=_mode(request),
            compiled=compiled_step(request["compiled"]),
            recorded=self._recorded,
            after=None if request["keep_running"] else self._stop,
        )
        self.recording.most = request.get("most")
        self.recording.alive = self._alive
        self._told_at = time.monotonic()
        self._stops = 0
        self._over = False
        """True once the script has ended."""
        self._end = SystemExit(0)
        """Raised to end the script after the recorded step; it is no error."""

    def _alive(self) -> None:
        """Tell the parent process now and then how far the script is."""
        if time.monotonic() - self._told_at >= _ALIVE_S:
            self._told_at = time.monotonic()
            # the script may have replaced what opens files
            file = os.open(self.request["progress"], os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(file, "{:12} {:12}".format(*self.recording.progress).encode())
            os.close(file)

    def _recorded(self, recording: Recording) -> None:
        try:
            if recording.mode is None or not recording.mode.machine or _on_gpu(recording.graph):
                save(recording.graph, self.request["graph"])
                if recording.graph.meta.untested and recording.mode is not None:
                    self.outcome["readings"] = [asdict(each) for each in recording.mode.values.readings.values()]
            elif self.request["moved"]:
                name = self.request["name"]
                said = f"{name} puts its model on the CPU by name{self._own_option()}"
                self.outcome["error"] = f"{said}\n--device cpu --fake records the step of the CPU"
            else:
                self.outcome["nothing_on_gpu"] = True
        except TensortideError as error:
            self.outcome |= _told(error)
        if not (self.request["keep_running"] or self._over):
            self._stop()

    def _own_option(self) -> str:
        """Advice about a model that is put on the CPU, with the script's own option for that if it has one."""
        source = linecache.getlines(str(vars(sys.modules["__main__"])["__file__"]))
        option = re.search(r"""["'](--[\w-]*(?:device|cuda|gpu|accelerator)[\w-]*)["']""", "".join(source))
        if option is not None:
            return f": let it use cuda, by its own option {option[1]}"
        return ': let it use cuda, as in model.to("cuda"); torch.cuda.is_available() answers yes'

    def _stop(self) -> None:
        self._stops += 1
        if self._stops > _RAISES:  # the script catches everything and continues
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        if threading.current_thread() is not threading.main_thread():
            _thread.interrupt_main()  # it may be waiting for this thread
        raise self._end

    def _on_fakes(self, replace: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
        """Return a function that makes fake batches of real ones."""

        def batch(item: Any) -> Any:
            isolation = Isolation(replace)
            try:
                return self.recording.loaded(isolation.visit(item, "batch"))
            finally:
                isolation.forget()

        return batch

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the script while active, on fake tensors if those are asked for."""
        with contextlib.ExitStack() as stack:
            mode = self.recording.mode
            if mode is not None:
                replace = mode.stand_in(fakes(mode))
                stack.enter_context(undisturbed(None if self.recording.compiled is None else contextlib.nullcontext()))
                if self.request["moved"] or self._trial is not None:
                    free = str(Path(self.request["graph"]).parent)
                    self._apart = stack.enter_context(kept_apart(self.request.get("made", ()), (f"{free}{os.sep}",)))
                else:
                    self._made = stack.enter_context(folders_made())
                stack.enter_context(mode.installed())
                stack.enter_context(loaders(self._on_fakes(replace)))
                stack.enter_context(mode)
                if self._trial is not None:
                    self._trying = stack.enter_context(mode.values.tried(self._trial))
                if self.request["moved"]:
                    stack.enter_context(mode.all_on_gpu())
                stack.enter_context(same_paths())
                stack.enter_context(followed())
                stack.enter_context(explained("step", self.request["name"], mode.remedy))
            place = None if self.request["place"] is None else Place(*self.request["place"])
            if place is not None:
                self.recording.notes.add(str(place))
            stack.enter_context(as_rank(place, self.recording.notes.add, self._messages))
            if self.recording.compiled is not None:
                stack.enter_context(self.recording.compiled.active())
            else:
                stack.enter_context(replaced(torch, "compile", self._not_compiled(torch.compile)))
            stack.enter_context(self.recording)
            yield

    def _not_compiled(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``torch.compile``, which ``script.py`` has disabled, to note that the script calls it."""

        @functools.wraps(compile_)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.recording.eager = True
            return compile_(*args, **kwargs)

        return noted

    def _run(self, code: CodeType, main: ModuleType) -> SystemExit | None:
        """Run the script. Returns the exit that it raised itself, if any: an end, not an error."""
        try:
            exec(code, vars(main))
        except SystemExit as ended:
            if ended is not self._end:
                return ended
            self._end.__context__ = self._end.with_traceback(None).__cause__ = (
                None  # else frames of the script keep files open
            )
        except KeyboardInterrupt:
            if not self._stops:
                raise
        finally:
            self._over = True
        return None

    def run(self, code: CodeType, main: ModuleType) -> None:
        """Run the script to its end, or to the end of the recorded step, and write the outcome."""
        try:
            with self.watched():
                ended = self._run(code, main)
            if ended is not None:
                raise ended
        except TooManyOps:
            self.outcome["other"] = f"over {self.recording.most:,} ops"
        except TensortideError as error:
            self.outcome |= _told(error)
            self.outcome["needs_value"] = isinstance(error, DataDependent)
        except Exception as error:
            if (lacking := of_program(error, self.request["name"])) is not None:
                self.outcome |= {"error": lacking, "cannot": True}
            self.outcome["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise
        finally:
            if self._trying is not None:
                self.outcome["read"] = [*map(list, (self._trying.compared, self._trying.reached))]
            if not self.recording.done:
                self.outcome["missed"] = self.recording.missed()
            if (mode := self.recording.mode) is not None and mode.unwritten:
                self.outcome["not_done"] = times(mode.unwritten, "write")
            self._messages.save(Path(self.request["messages"]))
            if self.request["place"] is not None or "readings" in self.outcome:  # it runs again, or as other ranks
                self.outcome["imports"] = [name for name in sys.modules if name.startswith("torch.")]
            if self._made:
                self.outcome["made"] = self._made
            if self._apart is not None:
                self.outcome["kept_apart"] = [sorted(self._apart.written), sorted(self._apart.hosts)]
            Path(self.request["outcome"]).write_text(json.dumps(self.outcome), "utf-8")


def _told(error: TensortideError) -> dict[str, Any]:
    """The outcome of a script that ends with ``error``."""
    return {"error": str(error), "cannot": status_of(error) is ExitStatus.CANNOT}


def _on_gpu(graph: Graph) -> bool:
    """True if the step has parameters on the GPU, or anything if it has none."""
    own = [storage for storage in graph.storages if storage.role is not Role.LIBRARY]
    kept = [storage for storage in own if storage.role is Role.PARAMETER]
    return any(storage.device.startswith("cuda") for storage in kept or own)


def run(request: dict[str, Any], kind: str, target: str, *arguments: str) -> int:
    """Run a script (``kind`` file, or module) with its ``arguments``. Returns the exit status; the process is to end
    then, and lets no Ctrl-C disturb that."""
    sys.argv = ["-m" if kind == "module" else target, *arguments]  # packages read it when they are imported
    try:
        try:
            code, main = (_module if kind == "module" else _file)(target)
        except (SyntaxError, ImportError, OSError, ValueError) as error:
            if isinstance(error, SyntaxError):
                sys.excepthook(type(error), error.with_traceback(None), None)
            said = f"{request['name']} cannot be run: {type(error).__name__}: {error}"
            found = {"error": said, "cannot": isinstance(error, SyntaxError)}
            Path(request["outcome"]).write_text(json.dumps(found), "utf-8")
            return 1
        if kind == "module":
            sys.argv[0] = str(vars(main)["__file__"])
        sys.modules["__main__"] = main
        try:
            script = _Script(request)
        except TensortideError as error:
            Path(request["outcome"]).write_text(json.dumps(_told(error)), "utf-8")
            return 1
        with _stack_told(request.get("stack")):
            script.run(code, main)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 as the interpreter would show it
        trace = error.__traceback__
        while trace is not None and is_internal(trace.tb_frame.f_code.co_filename) and trace.tb_next is not None:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 0


@contextlib.contextmanager
def _stack_told(file: str | None) -> Iterator[None]:
    """Write the stack of the main thread to ``file`` when the parent process asks for it, while active."""
    if file is None or ASKED is None:
        yield
        return
    with open(file, "w") as stack:  # noqa: PTH123 its number is kept
        faulthandler.register(ASKED, stack, all_threads=False)
        try:
            yield
        finally:
            faulthandler.unregister(ASKED)


def _file(target: str) -> tuple[CodeType, ModuleType]:
    path = str(Path(target).absolute())
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path(target).resolve().parent))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    return code, _main(path, None, SourceFileLoader("__main__", path))


def _module(target: str) -> tuple[CodeType, ModuleType]:
    if not sys.flags.safe_path:
        sys.path.insert(0, str(Path.cwd()))
    spec = importlib.util.find_spec(target)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{target}.__main__")
    loader: Any = spec.loader if spec is not None else None
    code = loader.get_code(spec.name) if spec is not None and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        raise ImportError(f"there is no module {target} to run as a script", name=target)
    return code, _main(spec.origin or "", spec, loader)


def _main(path: str, spec: ModuleSpec | None, loader: Any) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__, main.__spec__, main.__loader__ = path, spec, loader
    main.__package__ = None if spec is None else spec.parent
    vars(main).update(__cached__=None, __annotations__={}, __builtins__=sys.modules["builtins"])
    return main
