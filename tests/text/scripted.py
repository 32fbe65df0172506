"""Engines whose model says what a test tells it to."""

from collections import deque
from typing import Any

import attrs

from adapters.fake_device import FakeDevice
from adapters.fake_device.workers import Job
from adapters.text.tokenizer import HubTokenizer
from kernel import Engine, OpenedDevice
from kernel.chat import ChatFormat
from kernel.ids import SessionId
from kernel.step import DeviceStep, StepDone, StepReport

__all__ = ["ScriptedDevice", "log_of", "opened"]


class ScriptedDevice(FakeDevice):
    """Draws the tokens of a script, one after another; then always token 0."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.script: deque[int] = deque()

    def _run(self, job: Job[DeviceStep, StepDone]) -> StepReport:
        report = super()._run(job)
        if not isinstance(report, StepDone):
            return report
        drawn = tuple(None if token is None else self._next() for token in report.tokens)
        return attrs.evolve(report, tokens=drawn)

    def _next(self) -> int:
        return self.script.popleft() if self.script else 0


def opened(
    tokenizer: HubTokenizer, chat: ChatFormat | None = None, *, ends: str = "", **options: Any
) -> tuple[ScriptedDevice, OpenedDevice]:
    """A device for a tokenizer; ``ends``: the token that ends a sequence."""
    device = ScriptedDevice(
        vocab_size=tokenizer.vocab_size,
        eos_token_ids=tuple(tokenizer.encode(ends)),
        **options,
    )
    return device, OpenedDevice(
        device=device, tokenizer=tokenizer, chat=chat, opening_ids=tokenizer.opening_ids
    )


def log_of(engine: Engine, session_id: str) -> list[int]:
    """A session's token log."""
    return engine.core.session(SessionId(session_id)).state.log.tolist()
