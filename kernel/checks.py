"""Checks of parameters that name the parameter, the value and the way out.

Shared by the frozen values of the public door; each check raises ``ValidationError``.
"""

import difflib
import math
import os
from collections.abc import Iterable
from typing import cast

from kernel.errors import ValidationError

__all__ = [
    "encodable",
    "instance",
    "integer",
    "items",
    "kept",
    "known_names",
    "name",
    "number",
    "path",
    "seconds",
    "strings",
    "text",
    "token_ids",
    "truth",
]


def integer(parameter: str, value: object, *, least: int, most: int | None = None) -> None:
    """Refuse anything but an ``int`` between ``least`` and ``most``; a bool is no number here."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationError(parameter=parameter, value=value, why="it must be an int")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValidationError(parameter=parameter, value=value, why=f"it must be {bounds}")


def number(
    parameter: str,
    value: object,
    *,
    above: float | None = None,
    least: float = 0,
    most: float | None = None,
) -> None:
    """Refuse anything but a finite number from ``least`` (or above ``above``) to ``most``."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValidationError(parameter=parameter, value=value, why="it must be a number")
    if not math.isfinite(value):
        raise ValidationError(parameter=parameter, value=value, why="it must be finite")
    if value < least or (above is not None and value <= above):
        bounds = f"at least {least:g}" if above is None else f"greater than {above:g}"
        raise ValidationError(parameter=parameter, value=value, why=f"it must be {bounds}")
    if most is not None and value > most:
        raise ValidationError(parameter=parameter, value=value, why=f"it must be at most {most:g}")


def seconds(parameter: str, value: object) -> None:
    """Refuse anything but ``None`` (no limit) or a positive, finite number of seconds."""
    if value is not None:
        number(parameter, value, above=0)


def kept(value: object) -> None:
    """Refuse a ``keep`` that is no count; how many there are to keep, the session knows."""
    if value is not None:
        integer("keep", value, least=0)


def name(parameter: str, value: object) -> None:
    """Refuse a name of the caller's own that is no text, or empty; ``None`` is none given."""
    if value is not None:
        text(parameter, value)


def text(parameter: str, value: object) -> None:
    """Refuse what is no text, or empty."""
    if not (isinstance(value, str) and value):
        raise ValidationError(parameter=parameter, value=value, why="it must be a str, not empty")


def path(parameter: str, value: object) -> str:
    """Refuse what names no file; returns it as text."""
    found = ""
    given = value
    if isinstance(given, str | os.PathLike):
        found = os.fspath(cast("os.PathLike[str] | str", given))
    if not found:
        raise ValidationError(parameter=parameter, value=value, why="it must name a file")
    return found


def instance(parameter: str, value: object, kind: type) -> None:
    """Refuse a value of another type; for types that no conversion is tried for."""
    if not isinstance(value, kind):
        why = f"it must be a {kind.__name__}, not a {type(value).__name__}"
        raise ValidationError(parameter=parameter, value=value, why=why)


def encodable(parameter: str, text: str) -> None:
    """Refuse lone surrogates: they are no text, and tokenizers fail on them in their own ways."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            parameter=parameter,
            value=f"a lone surrogate at character {error.start}",
            why="it is no text; decode the input with errors='replace'",
        ) from None


def truth(parameter: str, value: object) -> None:
    """Refuse anything but ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise ValidationError(parameter=parameter, value=value, why="it must be True or False")


def known_names(given: Iterable[str], known: Iterable[str], *, of: str) -> None:
    """Refuse a name that isn't known, and name the ones that look like it."""
    known = sorted(known)
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise ValidationError(parameter=name, value="...", why=f"{of} has no such field; {hint}")


def items(parameter: str, value: object) -> tuple[object, ...]:
    """Return a sequence or set as a tuple; ``None`` is empty; anything else is refused."""
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValidationError(parameter=parameter, value=value, why="it must be a sequence")
    return tuple(cast("Iterable[object]", value))


def strings(parameter: str, value: object) -> tuple[str, ...]:
    """Return one string or several as a tuple; refuse other types and the empty string."""
    found = (value,) if isinstance(value, str) else items(parameter, value)
    if not all(isinstance(text, str) and text for text in found):
        raise ValidationError(parameter=parameter, value=value, why="each must be a str, not empty")
    return cast("tuple[str, ...]", found)


def token_ids(parameter: str, value: object) -> tuple[int, ...]:
    """Return token ids, each an int of at least 0, as a tuple."""
    found = items(parameter, value)
    for token in found:
        integer(parameter, token, least=0)
    return cast("tuple[int, ...]", found)
