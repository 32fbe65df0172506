"""One event of a log, read field by field: a wrong type is a finding, not a crash."""

from collections.abc import Mapping
from typing import cast

import attrs

__all__ = ["Event", "MalformedEvent"]


class MalformedEvent(Exception):
    """The event lacks a field of its schema, or the field has another type."""


@attrs.frozen
class Event:
    """A view of one decoded line that checks types where a field is read."""

    name: str
    fields: Mapping[str, object]

    def integer(self, field: str) -> int:
        value = self.fields.get(field)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._malformed(field, "an integer")
        return value

    def integer_or_none(self, field: str) -> int | None:
        return None if self.fields.get(field) is None else self.integer(field)

    def integers(self, field: str) -> tuple[int, ...]:
        items = self._items(field)
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            raise self._malformed(field, "a list of integers")
        return tuple(cast("list[int]", items))

    def text(self, field: str) -> str:
        value = self.fields.get(field)
        if not isinstance(value, str):
            raise self._malformed(field, "a string")
        return value

    def text_or_none(self, field: str) -> str | None:
        return None if self.fields.get(field) is None else self.text(field)

    def rows(self, field: str) -> tuple["Event", ...]:
        """The field's objects, each as an event of its own with this event's name."""
        rows: list[Event] = []
        for item in self._items(field):
            if not isinstance(item, dict):
                raise self._malformed(field, "a list of objects")
            rows.append(Event(self.name, cast("dict[str, object]", item)))
        return tuple(rows)

    def _items(self, field: str) -> list[object]:
        value = self.fields.get(field)
        if not isinstance(value, (list, tuple)):
            raise self._malformed(field, "a list")
        return list(cast("list[object]", value))

    def _malformed(self, field: str, wanted: str) -> MalformedEvent:
        return MalformedEvent(f"field {field!r} is {self.fields.get(field)!r}, not {wanted}")
