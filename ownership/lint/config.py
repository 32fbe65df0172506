"""What is linear, and what consumes: the defaults, and what a project declares."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import attrs

__all__ = ["Config", "ConfigError"]

_HANDLES = tuple(
    f"ownership.handles.{name}" for name in ("BatchOwned", "SessionOwned", "CacheOwned", "Lease")
)
_KEYS = ("linear", "named", "consuming", "usable-after", "exclude")


class ConfigError(ValueError):
    """The configuration says something that the checker doesn't understand."""


def _names(value: Sequence[str]) -> tuple[str, ...]:
    return tuple(value)


@attrs.frozen
class Config:
    """Which types are followed; names are dotted, re-exports included."""

    linear: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """Classes whose instances are handles, beside those of :mod:`ownership`."""
    named: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """Handles whose owner is elsewhere, so that their name may be kept in several places."""
    consuming: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """``package.Class.method`` ends its receiver, ``package.function[:parameter]`` an argument."""
    usable_after: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """Methods that may be called on a receiver that a consuming method has ended."""
    exclude: tuple[str, ...] = attrs.field(default=(), converter=_names)
    """Glob patterns of paths that are not read."""

    @property
    def handles(self) -> tuple[str, ...]:
        """All linear classes."""
        return _HANDLES + self.linear

    @property
    def names(self) -> tuple[str, ...]:
        """All named classes."""
        return ("ownership.handles.Lease", *self.named)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read ``[tool.tenure.lint]`` of a TOML file, or the keys at its top.

        Raises:
            ConfigError: no TOML, an unknown key, or a value that is not a list of names.
        """
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        is_project = path.name == "pyproject.toml" or "tool" in document
        if is_project:
            document = document.get("tool", {}).get("tenure", {}).get("lint", {})
        return cls.of(document)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """Check a table's keys and values."""
        for key, value in table.items():
            if key not in _KEYS:
                raise ConfigError(f"unknown key {key!r}; known are {', '.join(_KEYS)}")
            names = cast("list[object]", value) if isinstance(value, list) else [value, 0]
            if not all(isinstance(name, str) for name in names):
                raise ConfigError(f"{key} wants a list of strings, not {value!r}")
        return cls(**{key.replace("-", "_"): value for key, value in table.items()})

    @classmethod
    def find(cls, start: Path) -> Self:
        """Load the nearest ``pyproject.toml`` at or above a path; the defaults without one."""
        for folder in (start, *start.parents):
            candidate = folder / "pyproject.toml"
            if candidate.is_file():
                return cls.load(candidate)
        return cls()
