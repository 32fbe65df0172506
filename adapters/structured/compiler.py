"""Forms of output, compiled once for a model's vocabulary and kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, cast

from adapters.structured.constraint import GrammarConstraint
from adapters.structured.grammars import form_of, grammar_of
from adapters.structured.matcher import Matcher, Vocabulary, load_library
from adapters.structured.vocabulary import vocabulary_of
from kernel.errors import ValidationError
from kernel.structured_outputs import StructuredOutputs

__all__ = ["LibraryCompiler"]

_KEPT = 64
"""Compiled forms; a large schema takes a few megabytes."""


class LibraryCompiler:
    """A :class:`kernel.requests.constraining.ConstraintCompiler` through ``llguidance``.

    Nothing is loaded before the first form is compiled.

    Args:
        definition: gives the text of the model's tokenizer.json.
        eos_token_ids: the model's ends of sequence.
    """

    def __init__(self, definition: Callable[[], str], eos_token_ids: tuple[int, ...]) -> None:
        self._definition = definition
        self._eos_token_ids = eos_token_ids
        self._compiled: OrderedDict[StructuredOutputs, Matcher] = OrderedDict()
        self._lock = threading.Lock()

    def is_compiled(self, wanted: StructuredOutputs, /) -> bool:
        """Whether :meth:`constraint` returns at once."""
        return wanted in self._compiled

    def constraint(
        self, wanted: StructuredOutputs, /, *, stop_ids: frozenset[int], min_tokens: int
    ) -> GrammarConstraint:
        """A constraint for one turn. May take a second, and may be called from any thread.

        Raises:
            ValidationError: the form can't be compiled, or nothing has it; the library is not
                installed, or can't serve this model's tokenizer.
        """
        constraint = GrammarConstraint(
            self._start(wanted),
            partial(self._renew, wanted),
            stop_ids=stop_ids,
            never=self._never,
            min_tokens=min_tokens,
        )
        if not stop_ids and constraint.is_complete(()):
            name, value = form_of(wanted)
            why = "only the empty text has it, and no end of sequence could be drawn"
            raise ValidationError(parameter=f"structured_outputs.{name}", value=value, why=why)
        return constraint

    def _start(self, wanted: StructuredOutputs) -> Matcher:
        start = self._compiled.get(wanted)
        if start is None:
            start = self._renew(wanted, None)
        with suppress(KeyError):  # another thread has let go of it meanwhile
            self._compiled.move_to_end(wanted)
        return start

    def _renew(self, wanted: StructuredOutputs, worn: Matcher | None) -> Matcher:
        """Compile a form in place of ``worn``, unless somebody has just done so."""
        # One at a time: they share the vocabulary, and several may ask for the same form.
        with self._lock:
            start = self._compiled.get(wanted)
            if start is None or start is worn:
                start = _compile(wanted, self._library, self._vocabulary)
                self._compiled[wanted] = start
                if len(self._compiled) > _KEPT:
                    self._compiled.popitem(last=False)
            return start

    @cached_property
    def _library(self) -> Any:
        return load_library()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return vocabulary_of(self._definition(), self._library)

    @cached_property
    def _never(self) -> frozenset[int]:
        """The end mark, and those ends of sequence that the tokenizer takes for text."""
        vocabulary = self._vocabulary
        mark = vocabulary.vocab_size - 1
        text = (
            id_
            for id_ in self._eos_token_ids
            if id_ < mark and not vocabulary.is_special_token(id_)
        )
        return frozenset((mark, *text))


def _compile(wanted: StructuredOutputs, library: Any, vocabulary: Vocabulary) -> Matcher:
    grammar = grammar_of(wanted, library)
    limits = library.LLParserLimits(verbose_errors=False)
    start = cast("Matcher", library.LLMatcher(vocabulary, grammar, log_level=0, limits=limits))
    why = start.get_error()
    if not why:
        # The first mask finds out what can't be begun; it is kept for all turns, too.
        start.compute_bitmask()
        if start.is_stopped() and not start.is_accepting():
            is_too_complex = start.stop_reason().endswith("TooComplex")
            why = "it is too complex" if is_too_complex else "no text has this form"
    if why:
        name, value = form_of(wanted)
        raise ValidationError(
            parameter=f"structured_outputs.{name}", value=value, why=" ".join(why.split())
        )
    return start
