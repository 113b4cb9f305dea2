"""``tensortide formulas project``: the cost of training a model that reaches an accuracy."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.formulas.options import (
    FormulaOptions,
    FormulasTarget,
    Paths,
    bindings_of,
    formulas_of,
    path_of,
    symbols_of,
)
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions
from tensortide.expr import parse
from tensortide.formulas.projection import domain_of
from tensortide.formulas.projection import project as projected


def project(
    target: FormulasTarget,
    /,
    *,
    domain: Annotated[str, Parameter(help="word_lm, char_lm, nmt, speech or image.")],
    growth: Annotated[str, Parameter(help="The hyperparameter that grows.")],
    path: Paths = (),
    batch: Annotated[str, Parameter(help="The symbol of the batch; without --set it is chosen.")] = "batch",
    samples_per_step: Annotated[
        str, Parameter(show_default=False, help="Samples a step trains on: batch*seq (default: the batch).")
    ] = "",
    error: Annotated[str, Parameter(show_default=False, help="The error to reach (default: the domain's).")] = "",
    samples: Annotated[
        float | None, Parameter(show_default=False, help="Train on so many, whatever the learning curve says.")
    ] = None,
    files: Files = Files(),  # noqa: B008
    options: FormulaOptions = FormulaOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Project what a model must be to reach an accuracy, and what a step and an epoch of it take."""
    from tensortide.reports.sections.projection import document

    files.check()
    chosen, steps = domain_of(domain), path_of(path)
    needed = {growth, batch, *symbols_of(steps), *(parse(samples_per_step).symbols if samples_per_step else ())}
    formulas = formulas_of(target, sorted(needed), options, quiet=out.quiet)
    given = {name: value for name, value in bindings_of(options).items() if name in formulas.symbols}
    found = projected(
        formulas,
        chosen,
        growth,
        batch=batch,
        samples_per_step=samples_per_step,
        target=error,
        samples=samples,
        path=steps,
        at=given,
    )
    made = document(found)
    show(made, out, wrote=files.write(made, table="requirements"))
