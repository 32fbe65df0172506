"""Draws an event log: slots against time, coloured by owner, as one page that needs no network.

Like the audit it knows the events' schema and nothing of the ledger. ``lanes`` turns events into
spans of ownership, ``page`` puts them into ``page.html`` with its style and script.
"""

from adapters.trace_view.log import draw_file, draw_lines
from adapters.trace_view.page import make_page
from adapters.trace_view.picture import Picture

__all__ = ["Picture", "draw_file", "draw_lines", "make_page"]
