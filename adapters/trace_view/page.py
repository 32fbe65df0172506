"""Puts pictures into the page: one HTML file with its style, its script and its data inside."""

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from adapters.trace_view.picture import OWNERS, Picture

__all__ = ["make_page"]

_PLACE = re.compile(r"(?:/\*)?\{\{(title|style|script|data)\}\}(?:\*/)?")


def make_page(title: str, pictures: Sequence[Picture]) -> str:
    """Make the page; it loads nothing, and can be opened from a disk or mailed."""
    data = {"owners": OWNERS, "engines": [picture.as_json() for picture in pictures]}
    parts = {
        "title": escape(title),
        "style": _part("page.css"),
        "script": _part("page.js"),
        # Nothing ends a script element but its end tag, so that may not stand in the data.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    # In one pass: what is put in is not looked at again, whatever a log is called.
    return _PLACE.sub(lambda place: parts[place[1]], _part("page.html"))


def _part(name: str) -> str:
    return files("adapters.trace_view").joinpath(name).read_text(encoding="utf-8")
