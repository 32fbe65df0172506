"""What every error of Tenure is one of; :mod:`kernel.errors` has the whole tree."""

import reprlib

__all__ = [
    "ClientError",
    "Overloaded",
    "ServerError",
    "TenureError",
    "ValidationError",
]


def _rebuild(kind: type["TenureError"], message: str, fields: dict[str, object]) -> "TenureError":
    error = kind.__new__(kind, message)
    error.__dict__.update(fields)
    return error


class TenureError(Exception):
    """Every error that Tenure raises on purpose; ``str(error)`` is one sentence or two."""

    def __reduce__(self) -> tuple[object, ...]:
        # Constructors take keywords, so the default (class, args) would not build them again;
        # process pools and Ray pickle the errors that cross them.
        return _rebuild, (type(self), str(self), self.__dict__)


class ClientError(TenureError):
    """The caller must change something; the same call fails again."""


class Overloaded(TenureError):
    """A bound of the engine is reached; the same call may succeed later."""


class ServerError(TenureError):
    """The engine failed the request through no fault of the caller."""


class ValidationError(ClientError, ValueError):
    """A parameter has a value that can't be served, or contradicts another."""

    def __init__(self, *, parameter: str, value: object, why: str) -> None:
        self.parameter = parameter
        self.value = value
        super().__init__(f"{parameter}={reprlib.repr(value)} is refused: {why}")
