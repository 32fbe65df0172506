"""Structured output: texts of a given form, through the ``llguidance`` library (an extra).

The library takes a schema, an expression or a grammar and says which tokens may come next; here
its matcher is made to follow a turn's tokens, whatever becomes of the turn.
"""

from adapters.structured.compiler import LibraryCompiler

__all__ = ["LibraryCompiler"]
