"""Everything tensortide raises on purpose.

TensortideError
├── RequestError         an option has no such value, or does not go with others
├── WorkloadError        the target cannot be found, built or called
├── CaptureError         the step failed while it was being captured
│   ├── Doubtful         ``strict`` was asked for, and the step depends on what was assumed
│   ├── ProgramFailed    the user's program failed by itself: a script, a step, a file that is imported
│   ├── DataDependent    the step needs a value that fake tensors do not have
│   ├── LogError         a file is no DTR log, is damaged, or contradicts itself
│   └── TraceError       a kernel trace or a compiled graph's dump is damaged, or contradicts itself
├── GraphError           a Graph is inconsistent
│   ├── GraphFileError   a file is not a Graph, is damaged, or is of another version
│   └── TimesError       a file of recorded times is none, is damaged, or is of another step
├── ExpressionError      a text is no expression, or an expression has no value where it was asked for
│   ├── OutsideRegion    formulas were asked for a setting at which they are not claimed
│   └── NoSolution       no value of a hyperparameter meets a goal
│       └── Unsearched   the same of the values that were looked at, which are not all
├── UnknownCost          a total was asked for under ``strict`` and ops have no rule
├── PlanError            a Plan does not execute its Graph
│   ├── PlanFileError    a file is not a Plan, is damaged, or is of another version
│   └── NothingFits      no placement fits the memory, as is proved
├── DegreesError         degrees of parallelism do not divide a model, a batch or a cluster
├── RunError             a live run was asked for something that cannot be
│   ├── BudgetInfeasible an op does not fit the memory budget, whatever is evicted
│   └── WorkersDied      workers of a sweep ended by themselves, again and again
├── MetricError          a metric, an option of one or a comparison is not as it must be
│   ├── Unavailable      a subject has no such figure; the message is the reason
│   └── CheckError       a check, an assertion or a baseline cannot be read, or is of another step
├── PlacementError       a placement, a net, a machine or a search of placements is not as it must be
├── NoSuchOp             an op, module or index is not in the graph
├── NotHere              what is needed is not here: a device, an interpreter with tensortide, a cluster
│   ├── MissingExtra     a package that is not installed
│   └── TorchUnavailable PyTorch is not installed, cannot be imported, is too old, or has not what is needed
└── OutputError          a result cannot be written

RunWarning               a live run goes on, but not as it should
├── CoreUnavailable      the compiled core of a memory budget could not be built: ops take longer
├── PlanLeft             the program does something else than the plan that it follows
├── SlowBudget           recomputation takes longer than the program's own ops
└── BudgetLowered        the device ran out of memory before the budget was reached
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, ClassVar


class ExitStatus(IntEnum):
    """Ends of a verb; beside these 128 + n after the signal n."""

    HOLDS = 0
    """It is answered, and what was asked about holds."""
    FAILS = 1
    """It is answered, and it does not hold: the step does not fit, an assertion fails, no plan can be."""
    WRONG = 2
    """The request or its input is wrong."""
    CANNOT = 3
    """It cannot be answered here: a package or a device is missing, the disk or the memory is full, a script fails by
    itself, or ``--strict`` is given and something is unknown; or tensortide is at fault."""
    UNDECIDED = 4
    """It is undecided: the limit is within the interval, or a search ended with nothing found and nothing excluded."""

    @classmethod
    def of_all(cls, each: Iterable[ExitStatus]) -> ExitStatus:
        """The status of what holds if all of it does: that something fails is known, whatever is not of the rest."""
        return min((one for one in each if one), default=cls.HOLDS)

    @classmethod
    def of_any(cls, each: Iterable[ExitStatus]) -> ExitStatus:
        """The status of what holds if some of it does, which is at least one."""
        return max(each, key=lambda one: (one is cls.HOLDS, one))


class TensortideError(Exception):
    """Base of all errors meant for the user: one message that says what is wrong, where, what next."""

    status: ClassVar[ExitStatus] = ExitStatus.WRONG


class RequestError(TensortideError):
    """An option has no such value, or does not go with others that are given."""


class WorkloadError(TensortideError):
    """The target cannot be found, built or called."""


class CaptureError(TensortideError):
    """The step failed while it was being captured. ``reason`` is the cause in one clause."""

    reason = ""
    resident: int | None = None
    """Bytes of tensors at that time, where real tensors instead of fake ones may not fail."""


class Doubtful(CaptureError):
    """``strict`` was asked for, and ops or sizes of the step depend on what was assumed."""

    status = ExitStatus.CANNOT


class ProgramFailed(WorkloadError, CaptureError):
    """The user's program failed by itself: a script, a workload or a step, or a file that is imported."""

    status = ExitStatus.CANNOT


class DataDependent(CaptureError):
    """The step needs the value of a tensor, which fake tensors do not have. ``place`` is the line that reads it."""

    place = ""


class LogError(CaptureError):
    """A file is no DTR log, is damaged, or contradicts itself; the message names file, line and reason."""


class TraceError(CaptureError):
    """A file of a kernel trace, or a dump of a compiled graph, is damaged or contradicts itself; the message names
    file, line, what stands there and what was expected."""


class GraphError(TensortideError):
    """A Graph is inconsistent."""


class GraphFileError(GraphError):
    """A file is not a Graph, is damaged, or is of a version this release cannot read."""


class TimesError(GraphError):
    """A file of recorded times is none, is damaged, or is of another step; the message names file and place."""


class ExpressionError(TensortideError):
    """A text is no expression, or an expression has no value at a binding."""


class OutsideRegion(ExpressionError):
    """Formulas were asked for a setting at which they are not claimed. ``needs`` is the condition that it fails."""

    def __init__(self, message: str, needs: str) -> None:
        super().__init__(message)
        self.needs = needs


class NoSolution(ExpressionError):
    """No value of a hyperparameter meets a goal."""

    status = ExitStatus.FAILS


class Unsearched(NoSolution):
    """No value that was looked at meets a goal; the message says which were not."""

    status = ExitStatus.UNDECIDED


class UnknownCost(TensortideError):
    """A total was asked for under ``strict`` and some ops have no cost rule."""

    status = ExitStatus.CANNOT


class PlanError(TensortideError):
    """A Plan does not execute its Graph, or does not fit.

    Where one step is to blame, ``step`` is its place in the plan's list and ``storage`` that which it concerns.
    ``expected`` and ``found`` are the states of that storage (the op that last wrote it, -1 before the step), and
    ``found`` is None if it is not resident. ``short_bytes`` are those that lack where there is no room.
    """

    expected: int | None = None
    found: int | None = None
    short_bytes: int | None = None

    def __init__(self, message: str = "", *, step: int | None = None, storage: int | None = None) -> None:
        super().__init__(message)
        self.step, self.storage = step, storage


class PlanFileError(PlanError):
    """A file is not a Plan, is damaged, or is of a version this release cannot read."""


class NothingFits(PlanError):
    """Wherever it is placed, a step does not fit the memory of the devices: that is proved before any search."""

    status = ExitStatus.FAILS


class DegreesError(TensortideError):
    """Degrees of parallelism do not divide a model, a batch or a cluster evenly; the message names the quotient."""


class RunError(TensortideError):
    """A live run was asked for something that cannot be."""


class BudgetInfeasible(RunError):
    """An op, or a whole step, does not fit the memory budget, whatever is evicted; the message says what would do.
    ``least_bytes``: the least budget for which a plan of the step was found, if one was looked for."""

    status = ExitStatus.FAILS
    least_bytes: int | None = None


class WorkersDied(RunError):
    """Workers of a sweep ended by themselves, again and again."""

    status = ExitStatus.CANNOT


class MetricError(TensortideError):
    """A metric, an option of one, a registration or a comparison is not as it must be."""


class Unavailable(MetricError):
    """A subject has no such figure. The message is the reason, which is kept in place of the value."""


class CheckError(MetricError):
    """A check, an assertion or a baseline cannot be read, or a baseline is of another step."""


class RunWarning(UserWarning):
    """A live run goes on, but not as it should; the message says what, why, and what to do instead."""


class CoreUnavailable(RunWarning):
    """The compiled core of a memory budget could not be built or loaded: everything works, and takes longer per op."""


class PlanLeft(RunWarning):
    """The program did something else than the plan that it is to follow."""


class SlowBudget(RunWarning):
    """Recomputation takes longer than the program's own ops."""


class PlacementError(TensortideError):
    """A placement, a net, a machine or a search of placements is not as it must be."""


class NoSuchOp(TensortideError):
    """An op, module or index is not in the graph."""


class NotHere(TensortideError):
    """A device, an interpreter with tensortide, or a cluster is needed, and not here."""

    status = ExitStatus.CANNOT


class MissingExtra(NotHere):
    """A package is needed that is not installed; the message says how it is."""


class TorchUnavailable(NotHere, ImportError):
    """PyTorch is not installed, cannot be imported, is of a version that is too old, or has not what is needed."""


class OutputError(TensortideError):
    """A result cannot be written."""


class BudgetLowered(RunWarning):
    """The device ran out of memory before the budget was reached: tensors were evicted, and the budget is lower now."""


def check_argument(name: str, value: object, kinds: tuple[Any, ...], what: str, *, least: float | None = None) -> None:
    """Raise RequestError for an argument of a function that is of none of these ``kinds``, or below ``least``.

    ``what`` says what it is. True and False are no numbers, and a text is no sequence.
    """
    of = next((kind for kind in (bool, str) if isinstance(value, kind)), None)
    is_one = isinstance(value, kinds) and (of is None or of in kinds)
    if not is_one or (least is not None and not value >= least):  # type: ignore[operator]  # it is a number
        raise RequestError(f"{name} is {what}, not {value!r:.80}")


def headline(error: BaseException) -> str:
    """Return what ``error`` says in one line: the first, or, where frameworks put words of their own around an error of
    the user's code, that error."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):  # Keras
        return f"{lines[1]} ({lines[0].removeprefix('Exception encountered when ').rstrip('.')})"
    if len(lines) > 1 and lines[0] == "in user code:":  # TensorFlow: a traceback follows, and what was raised
        return lines[-1]
    return lines[0] if lines else ""


def status_of(error: BaseException | None) -> ExitStatus:
    """The status of a verb that raises ``error``, or one that it was caused by: neither a full disk nor a device that
    is not here is a fault of the request."""
    while error is not None:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        # PyTorch's own is a RuntimeError
        if full or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            return ExitStatus.CANNOT
        if isinstance(error, TensortideError) and error.status is not ExitStatus.WRONG:
            return error.status
        error = error.__cause__
    return ExitStatus.WRONG
