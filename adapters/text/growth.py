"""What makes long values out of short ones is looked at before it runs.

Repetition, padding, joining and replacing can each ask for gigabytes in a few characters of
template. The size of the result is known from the operands; so it is checked first.
"""

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from adapters.text.budget import Budget
from adapters.text.errors import TemplateOverrun
from adapters.text.written_length import written_length

__all__ = ["bounded_filter", "check_call", "check_format", "check_operator"]

_INT_BITS = 100_000
"""Integers beyond this take seconds to multiply."""
_WRITES = frozenset({"string", "tojson", "pprint", "urlencode", "xmlattr", "escape", "e"})
"""Filters that write a value which is no text as one."""
_NUMBER = re.compile(r"\d{6,}")


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
        budget.check_size(_length(value) * max(0, times))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0  # pyright: ignore[reportUnknownArgumentType]  # of whatever


def check_format(budget: Budget, text: str | bytes, values: Any) -> None:
    """Refuse a format that asks for a great width, or writes long values many times.

    Raises:
        TemplateOverrun: there is one.
    """
    shown = text if isinstance(text, str) else text.decode("latin-1")
    for number in _NUMBER.findall(shown):
        budget.check_size(int(number[:20]))
    if "*" in shown or "{" in shown:
        _check_integers(budget, values)
    longest = max((written_length(value) for value in values), default=0)
    budget.check_size(len(text) + longest * (shown.count("%") + shown.count("{")))


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
        if name in ("format", "format_map"):
            check_format(budget, value, (*args, *kwargs.values()))
        _check_text(budget, name, value, args)


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
        if name in _WRITES:
            budget.check_size(written_length(value))
        if isinstance(value, str):
            if name == "format":
                check_format(budget, value, given)
            _check_text(budget, name, value, given)
        elif name == "join" and isinstance(value, list | tuple):
            separator = given[0] if given and isinstance(given[0], str) else ""
            _check_text(budget, name, separator, [value])
        result: Any = function(*args, **kwargs)
        budget.check_size(_length(result))
        return result

    return bounded
