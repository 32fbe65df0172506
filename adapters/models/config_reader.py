"""config.json read key by key: every value checked where a family asks for it.

What is wrong is a :class:`ConfigError` that names the key, the value and what would be right. A
key at ``null`` is as if it weren't there, since ``transformers`` writes many of those.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

from adapters.models.errors import ConfigError, ModelFileMissing

__all__ = ["CONFIG_FILE", "ConfigReader"]

CONFIG_FILE = "config.json"

T = TypeVar("T")
_REQUIRED = object()


class ConfigReader:
    """A JSON object whose values are asked for by name and type.

    Args:
        values: the object; not changed.
        where: how messages call it, ``"config.json"`` or a part of it.
    """

    def __init__(self, values: Mapping[str, object], *, where: str = CONFIG_FILE) -> None:
        self._values = values
        self._used: dict[str, object] = {}
        self.where = where

    @classmethod
    def load(cls, directory: Path) -> "ConfigReader":
        """Read ``directory/config.json``.

        Raises:
            ModelFileMissing: there is none, or it can't be read.
            ConfigError: it isn't a JSON object in UTF-8.
        """
        path = directory / CONFIG_FILE
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelFileMissing(f"{directory} is no model: can't read {CONFIG_FILE}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} isn't UTF-8 text") from error

    @classmethod
    def from_json(cls, text: str) -> "ConfigReader":
        """Read the text of a config.json; a ``ConfigError`` if it isn't a JSON object."""
        try:
            parsed: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{CONFIG_FILE} isn't JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise ConfigError(f"{CONFIG_FILE} must hold an object")
        return cls(cast("dict[str, object]", parsed))

    @property
    def values(self) -> Mapping[str, object]:
        """The object as it is, for what needs all of it."""
        return _Noting(self._values, self._used)

    @property
    def used(self) -> Mapping[str, object]:
        """What was asked for so far, by name, where it isn't the default.

        Without defaults, a family that learns to read another key leaves this as it is for all
        configurations that don't have the key; and writing a default out changes nothing.
        """
        return self._used

    def has(self, name: str) -> bool:
        """Whether the key is there and not ``null``."""
        return self._values.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number from ``least``; required without a default."""
        value = self._get(name, _REQUIRED if default is None else default)
        if type(value) is not int or value < least:
            raise self.wrong(name, value, f"a whole number from {least}")
        return value

    def number(self, name: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A finite number above ``above``; required without a default."""
        value = self._get(name, _REQUIRED if default is None else default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, value, f"a number above {above:g}")
        # Whole numbers may be larger than any float.
        if not above < value <= sys.float_info.max:
            raise self.wrong(name, value, f"a number above {above:g}")
        return float(value)

    def boolean(self, name: str, default: bool | None = None) -> bool:
        """True or false; required without a default."""
        value = self._get(name, _REQUIRED if default is None else default)
        if type(value) is not bool:
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text; required without a default."""
        value = self._get(name, _REQUIRED if default is None else default)
        if type(value) is not str:
            raise self.wrong(name, value, "a text")
        return value

    def choice(self, name: str, options: Mapping[str, T], default: str | None = None) -> T:
        """What ``options`` has under the text of this key."""
        value = self._get(name, _REQUIRED if default is None else default)
        if type(value) is not str or value not in options:
            raise self.wrong(name, value, "one of " + ", ".join(sorted(options)))
        return options[value]

    def integers(
        self, name: str, default: Sequence[int] | None = None, *, least: int = 0
    ) -> tuple[int, ...]:
        """A list of whole numbers from ``least``; a single one is a list of one."""
        value = self._get(name, _REQUIRED if default is None else list(default))
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        if not all(type(item) is int and item >= least for item in items):
            wrong = self._values.get(name)
            raise self.wrong(name, wrong, f"a list of whole numbers from {least}")
        return tuple(cast("list[int]", items))

    def numbers(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """A list of numbers, infinite ones in both spellings of ``transformers``."""
        value = self._get(name, _REQUIRED if default is None else list(default))
        items = cast("list[object]", value) if isinstance(value, (list, tuple)) else [value]
        numbers: list[float] = []
        for item in items:
            spelled = _unspelled(item)
            if isinstance(spelled, bool) or not isinstance(spelled, (int, float)):
                raise self.wrong(name, self._values.get(name), "a list of numbers")
            if isinstance(spelled, int) and abs(spelled) > sys.float_info.max:
                raise self.wrong(name, self._values.get(name), "a list of numbers")
            numbers.append(float(spelled))
        return tuple(numbers)

    def texts(self, name: str, options: Sequence[str]) -> tuple[str, ...]:
        """A list of texts, each one of ``options``; required."""
        value = self._get(name, _REQUIRED)
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list of names")
        for item in cast("list[object]", value):
            if item not in options:
                raise self.wrong(name, item, "one of " + ", ".join(options))
        return tuple(cast("list[str]", value))

    def sub(self, name: str) -> "ConfigReader":
        """The object under this key; an empty one where the key isn't there."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        values = cast("dict[str, object]", value or {})
        part = ConfigReader(values, where=f"{self.where}: {name}")
        used = self._used.get(name)
        # One record for all who ask for this part.
        part._used = cast("dict[str, object]", used) if isinstance(used, _Part) else _Part()
        self._used[name] = part._used
        return part

    def refuse(self, name: str, *, unless: object, why: str) -> None:
        """Refuse a feature that isn't built: any value of the key but ``unless``.

        Raises:
            ConfigError: names the key, its value and ``why``.
        """
        value = self._values.get(name)
        if value is not None and value != unless:
            raise ConfigError(f"{self.where}: {name} is {value!r}: {why}")

    def wrong(self, name: str, value: object, right: str) -> ConfigError:
        """The error for a value that isn't ``right``."""
        return ConfigError(f"{self.where}: {name} must be {right}, not {value!r}")

    def _get(self, name: str, default: object) -> object:
        value = self._values.get(name)
        if value is None:
            if default is _REQUIRED:
                raise ConfigError(f"missing keys in {self.where}: {name}")
            return default
        if value != default:
            self._used[name] = value
        return value


class _Part(dict[str, object]):
    """What was asked for of an object inside of config.json."""


class _Noting(Mapping[str, object]):
    """A mapping that notes what is asked for."""

    def __init__(self, values: Mapping[str, object], used: dict[str, object]) -> None:
        self._values, self._used = values, used

    def __getitem__(self, name: str) -> object:
        self._used[name] = value = self._values[name]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _unspelled(item: object) -> object:
    """JSON has no infinity: it is written bare, or as an object that names it."""
    if isinstance(item, dict):
        named = cast("dict[str, object]", item).get("__float__")
        spelled: dict[str, object] = {"Infinity": float("inf"), "-Infinity": float("-inf")}
        return spelled.get(str(named))  # nothing: no number either
    return item
