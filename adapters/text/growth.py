"""What makes long values out of short ones is looked at before it runs.

Repetition, padding, joining and replacing can each ask for gigabytes in a few characters of
template. The size of the result is known from the operands; so it is checked first.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from string import Formatter
from typing import Any

from adapters.text.budget import Budget
from adapters.text.errors import TemplateOverrun
from adapters.text.written_length import written_length

__all__ = [
    "bounded_filter",
    "check_call",
    "check_format",
    "check_operator",
    "counted_rounds",
]

_INT_BITS = 100_000
"""Integers beyond this take seconds to multiply."""
_WRITES = frozenset({"string", "tojson", "pprint", "urlencode", "xmlattr", "escape", "e"})
"""Filters that write a value which is no text as one."""
_COMPARES = frozenset({"sort", "unique", "min", "max", "groupby", "dictsort", "sum"})
"""Filters that look into the values of a list."""
_WIDTH = re.compile(r"[%).][ 0+#_^-]*(\d+)")
"""Where a number is a width or a precision of ``%``, and not part of the text."""
_DIGITS = re.compile(r"\d+")


def check_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Refuse an operator whose result would be too long; all others pass.

    Raises:
        TemplateOverrun: it would be.
    """
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * max(0, right) if operator == "**" else left.bit_length()
        if operator in ("*", "**") and bits + right.bit_length() > _INT_BITS:
            raise TemplateOverrun(why="the template makes a number of too many digits")
    elif operator == "*":
        _check_repetition(budget, left, right)
        _check_repetition(budget, right, left)
    elif operator == "+":
        budget.check_size(_length(left) + _length(right))
    elif operator == "%" and isinstance(left, str | bytes):
        check_format(budget, left, right if isinstance(right, tuple) else (right,))


def _check_repetition(budget: Budget, value: Any, times: Any) -> None:
    if isinstance(times, int):
        size = _length(value) if isinstance(value, str | bytes) else written_length(value)
        budget.check_size(size * max(0, times))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0  # pyright: ignore[reportUnknownArgumentType]  # of whatever


def check_format(budget: Budget, text: str | bytes, values: Any) -> None:
    """Refuse a format that asks for a great width, or writes long values many times.

    Raises:
        TemplateOverrun: there is one.
    """
    shown = text if isinstance(text, str) else text.decode("latin-1")
    widths = _sum(_WIDTH.findall(shown))
    if "*" in shown:
        widths += sum(abs(value) for value in values if isinstance(value, int))
    _check_written(budget, widths, shown.count("%"), shown, values)


def _check_braces(budget: Budget, text: str, values: Any) -> None:
    """The same for ``str.format``."""
    widths = fields = 0
    for _, name, form, _ in Formatter().parse(text):
        if form and "{" in form:
            raise TemplateOverrun(why="the template formats with a width that is a value")
        fields += name is not None
        widths += _sum(_DIGITS.findall(form or ""))
    _check_written(budget, widths, fields, text, values)


def _check_written(budget: Budget, widths: int, fields: int, text: str, values: Any) -> None:
    longest = max((written_length(value) for value in values), default=0)
    budget.check_size(len(text) + widths + longest * fields)


def _sum(numbers: Iterable[str]) -> int:
    return sum(int(number[:20]) for number in numbers)


def check_call(budget: Budget, function: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of a method of Python's own values whose result would be too long.

    Raises:
        TemplateOverrun: it would be.
    """
    function = getattr(function, "__wrapped__", function)  # the sandbox's own str.format
    value = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if not isinstance(value, str | bytes | int | float | list | tuple | dict):
        return
    _check_integers(budget, args)
    _check_integers(budget, kwargs.values())
    if isinstance(value, str | bytes):
        if isinstance(value, str) and name in ("format", "format_map"):
            _check_braces(budget, value, (*args, *kwargs.values()))
        _check_text(budget, name, value, args)
    elif isinstance(value, list | tuple) and name in ("index", "count"):
        budget.check_extent(written_length(value))  # pyright: ignore[reportUnknownArgumentType]  # of whatever


def _check_text(budget: Budget, name: str, text: Any, args: Any) -> None:
    """Methods of texts that grow, and the filters of the same names."""
    if name == "replace" and len(args) >= 2 and all(hasattr(part, "__len__") for part in args[:2]):
        old, new = args[0], args[1]
        found = text.count(old) if isinstance(old, type(text)) else len(text)
        budget.check_size(len(text) + found * len(new))
    elif name == "join" and args and isinstance(args[0], list | tuple):
        budget.check_size(written_length(args[0]) + len(text) * len(args[0]))
    elif name in ("expandtabs", "indent") and args and isinstance(args[0], int):
        lines = text.count("\t" if name == "expandtabs" else "\n") if isinstance(text, str) else 0
        budget.check_size(len(text) + (lines + 1) * abs(args[0]))


def _check_integers(budget: Budget, values: Any) -> None:
    for value in values:
        if isinstance(value, int):
            budget.check_size(abs(value))


def bounded_filter(
    name: str, function: Callable[..., Any], budget_now: Callable[[], Budget]
) -> Callable[..., Any]:
    """A filter that counts as a step, and whose arguments and result have bounds."""
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)  # keeps the marks by which Jinja knows what else to pass
    def bounded(*args: Any, **kwargs: Any) -> Any:
        budget = budget_now()
        budget.step()
        value, *rest = (*args[skipped:], None)
        given = [*rest[:-1], *kwargs.values()] if rest else []
        _check_integers(budget, given)
        budget.check_extent(_length(value))
        if name in _WRITES or name in _COMPARES:
            budget.check_extent(written_length(value))
        if name == "sum" and any(isinstance(start, list | tuple) for start in given):
            raise TemplateOverrun(why="the template adds up lists, which may take hours")
        if isinstance(value, str):
            if name == "format":
                check_format(budget, value, given)
            _check_text(budget, name, value, given)
        elif name == "join" and isinstance(value, list | tuple):
            separator = given[0] if given and isinstance(given[0], str) else ""
            _check_text(budget, name, separator, [value])
        result: Any = function(*args, **kwargs)
        budget.check_size(_length(result))
        return counted_rounds(result, budget) if isinstance(result, Iterator) else result  # pyright: ignore[reportUnknownArgumentType]  # of whatever

    return bounded


def counted_rounds(values: Iterable[Any], budget: Budget) -> Iterator[Any]:
    """The values, each a step."""
    for value in values:
        budget.step()
        yield value
