"""The root of every error that a user may see.

    WorkbenchError            what, where, what to do; its exit code
      KernelError             kernels that were asked for cannot run here (kernels.plan)
      FormatError             values that a number or row format cannot hold (kernels.quantize)
      TableError              a table of launch configurations does not fit (kernels.tuning)
      DocumentError           a file that should hold what a bench found (kernels.bench_document)
      engine.errors           EngineError and below
      experiments.errors      ExperimentError and below
      workbench.errors        BenchError and below

It lives on the ground storey so that each storey above can extend it.
"""

from __future__ import annotations


class WorkbenchError(Exception):
    """A failure explained to the person who can mend it.

    `what` says what is wrong in one sentence, `where` names the file, field or request,
    `remedy` says what to do. `exit_code` is what the command line returns: 2 for bad input,
    1 for a failure that correct input met.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        end = "" if self.what.endswith((".", "!", "?", ":")) else "."
        advice = f"{end} {self.remedy}" if self.remedy else ""
        return f"{place}{self.what}{advice}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.remedy))


def _rebuild(
    kind: type[WorkbenchError], what: str, where: str | None, remedy: str | None
) -> WorkbenchError:
    return kind(what, where=where, remedy=remedy)
