"""What a layer gets beside its input: the layout of the pass, and the memory."""

import attrs

from adapters.ragged.arenas import Arenas
from adapters.ragged.plan import PassPlan

__all__ = ["Pass"]


@attrs.frozen(eq=False)
class Pass:
    """One pass over the rows of a step."""

    plan: PassPlan
    arenas: Arenas

    @property
    def decode_rows(self) -> int:
        """Rows of one token; their tokens come first."""
        return len(self.plan.decode.host)
