"""Tiny models of every family, several shapes each, as settings of transformers' configurations."""

from tests.parity.cases.attention import ATTENTION
from tests.parity.cases.case import VOCABULARY, Case
from tests.parity.cases.delta_nets import DELTA_NETS
from tests.parity.cases.hybrids import HYBRIDS
from tests.parity.cases.recurrent import RECURRENT

__all__ = ["CASES", "VOCABULARY", "Case"]

CASES: tuple[Case, ...] = (*RECURRENT, *HYBRIDS, *DELTA_NETS, *ATTENTION)
"""In the order of the table in ``docs/models.md``."""
