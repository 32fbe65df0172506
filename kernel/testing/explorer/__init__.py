"""The explorer: the real actors of a small engine, without an event loop, in every order.

A chooser picks the next event: which mailbox is served, when a step of the device ends and how,
when time passes, what a caller does, what goes wrong. Breadth first, so that a trace to a broken
property is a shortest one. ``docs/explorer.md`` says what is merged and what that assumes.
"""

from kernel.testing.explorer.events import Event
from kernel.testing.explorer.report import Exploration, Failure
from kernel.testing.explorer.search import explore, replay
from kernel.testing.explorer.trace import narrate
from kernel.testing.explorer.world import Conversation, Interrupt, Turn, World

__all__ = [
    "Conversation",
    "Event",
    "Exploration",
    "Failure",
    "Interrupt",
    "Turn",
    "World",
    "explore",
    "narrate",
    "replay",
]
