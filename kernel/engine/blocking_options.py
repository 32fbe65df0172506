"""What the blocking door passes on by name: the keywords of the async door's methods, as types.

Each is held to the method that it is for by a test, so that a type checker refuses here what the
method would.
"""

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from kernel.config import OnLimit
from kernel.environment import Environment
from kernel.loading import OnProgress
from kernel.outputs import RequestOutput
from kernel.requests.options import RequestOptions
from kernel.session_store import SessionFiles
from kernel.step import Device, OpenedDevice

__all__ = [
    "AppendOptions",
    "ForkOptions",
    "MapOptions",
    "OpenOptions",
    "SessionOptions",
    "TurnOptions",
]


class OpenOptions(TypedDict, total=False):
    """Of :meth:`Engine.open`."""

    device: Device | OpenedDevice | None
    logger: Any
    environment: Environment | None
    progress: OnProgress
    session_files: SessionFiles | None


class SessionOptions(TypedDict, total=False):
    """Of :meth:`Engine.session`."""

    session_id: str | None
    idle_timeout_s: float | None
    detached: bool
    on_limit: OnLimit | None
    resume: bool


class ForkOptions(TypedDict, total=False):
    """Of :meth:`Session.fork`."""

    session_id: str | None
    idle_timeout_s: float | None
    detached: bool


class AppendOptions(TypedDict, total=False):
    """Of :meth:`Session.append`."""

    wait: bool
    timeout_s: float | None
    cache_salt: str | None


class TurnOptions(RequestOptions, total=False):
    """Of :meth:`Session.turn`."""

    wait: bool
    on_exit: Literal["rollback", "keep"]


class MapOptions(TypedDict, total=False):
    """Of :meth:`Engine.map`."""

    concurrency: int
    on_result: Callable[[int, RequestOutput], None] | None
