"""What makes a turn's constraint of the form that its caller asks for, before it is submitted.

Compiling a form can take a second, so it is done in the caller's task and, unless it was compiled
before, on a worker thread: never in an actor's handler.
"""

from functools import partial
from typing import Protocol

import anyio.to_thread

from kernel.requests.logit_rules import TokenConstraint
from kernel.structured_outputs import StructuredOutputs

__all__ = ["ConstraintCompiler", "constraint_for"]


class ConstraintCompiler(Protocol):
    """Compiles forms of output for one model; thread-safe."""

    def is_compiled(self, wanted: StructuredOutputs, /) -> bool:
        """Whether :meth:`constraint` returns at once."""
        ...

    def constraint(
        self, wanted: StructuredOutputs, /, *, stop_ids: frozenset[int], min_tokens: int
    ) -> TokenConstraint:
        """A constraint for one turn; may block for as long as compiling takes.

        Args:
            wanted: the form.
            stop_ids: tokens that end the turn; where the output may end, they are allowed.
            min_tokens: before so many tokens they are not, unless nothing else is.

        Raises:
            ValidationError: the form can't be compiled, or what compiles it isn't installed.
        """
        ...


async def constraint_for(
    compiler: ConstraintCompiler,
    wanted: StructuredOutputs,
    *,
    stop_ids: frozenset[int],
    min_tokens: int,
) -> TokenConstraint:
    """A constraint for one turn.

    Cancel-safe: nothing has been submitted, and a form that is being compiled when the caller
    leaves is compiled to its end and kept for the next one who asks.

    Raises:
        ValidationError: as :meth:`ConstraintCompiler.constraint`.
    """
    make = partial(compiler.constraint, wanted, stop_ids=stop_ids, min_tokens=min_tokens)
    if compiler.is_compiled(wanted):
        return make()
    return await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
