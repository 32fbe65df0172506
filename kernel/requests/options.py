"""What may be said of a request beside its prompt and its sampling, and whether it makes sense."""

from collections.abc import Sequence
from typing import Final, TypedDict, cast

from kernel import checks
from kernel.errors import ValidationError

__all__ = ["RequestOptions", "check_options"]

_MOST_PRIORITY: Final = 1_000_000
_MOST_POSITIONS: Final = 64


class RequestOptions(TypedDict, total=False):
    """What may be said of a request beside its prompt and its sampling."""

    request_id: str | None
    """Names it in events, errors and ``abort``; a fresh one by default."""
    priority: int
    """Lower is more urgent (policy ``"priority"``)."""
    tenant: str
    """Whose share it takes (policy ``"fair"``)."""
    queue_timeout_s: float | None
    """Seconds until admission."""
    timeout_s: float | None
    """Seconds until the end; also the deadline of policy ``"deadline"``."""
    stall_timeout_s: float | None
    """Seconds that output may lie unread."""
    cache_salt: str | None
    """Only requests of the same salt share prefixes, ``""`` by default; a session goes on with the
    one that it was given last."""
    cache_at: Sequence[int]
    """Positions whose states the prefix cache shall keep, counted in tokens from the beginning of
    the whole context; the end of a system prompt, say."""


def check_options(options: RequestOptions) -> None:
    """Refuse here what would fail in the scheduler, and everybody's turns with it."""
    if not options:
        return
    checks.known_names(options, RequestOptions.__annotations__, of="a request")
    for name in ("queue_timeout_s", "timeout_s", "stall_timeout_s"):
        checks.seconds(name, options.get(name))
    priority = options.get("priority", 0)
    checks.integer("priority", priority, least=-_MOST_PRIORITY, most=_MOST_PRIORITY)
    _check_positions(options.get("cache_at", ()))
    texts: dict[str, object] = {
        name: options.get(name) for name in ("request_id", "tenant", "cache_salt")
    }
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise ValidationError(parameter=name, value=text, why="it must be a str")


def _check_positions(given: object) -> None:
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Sequence):
        why = f"it must be a sequence of positions, not {type(given).__name__}"
        raise ValidationError(parameter="cache_at", value=given, why=why)
    positions = cast("Sequence[object]", given)
    if len(positions) > _MOST_POSITIONS:
        why = f"at most {_MOST_POSITIONS} positions can be named for one request"
        raise ValidationError(parameter="cache_at", value=f"{len(positions)} of them", why=why)
    for position in positions:
        checks.integer("cache_at", position, least=1)
