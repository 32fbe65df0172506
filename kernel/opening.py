"""Finding the device that a configuration names, and the probe that it asks for."""

import os
from importlib.metadata import entry_points
from typing import Any

import structlog

from kernel.config import EngineConfig
from kernel.environment import Environment
from kernel.errors import ValidationError
from kernel.loading import OnProgress, no_progress
from kernel.probe import EventProbe, NullProbe, Probe
from kernel.step import DeviceFactory, OpenedDevice

__all__ = ["DEVICES", "make_probe", "open_device"]

DEVICES = "tenure.devices"
"""Entry-point group in which devices are found by name."""


def open_device(config: EngineConfig, progress: OnProgress = no_progress) -> OpenedDevice:
    """Open the device that ``config.device`` names. Blocks while the model is loaded.

    Args:
        config: names device, model and number types.
        progress: told how far the loading is, on this thread.

    Raises:
        ValidationError: no such device is installed.
        ModelError: the model can't be opened.
    """
    found = entry_points(group=DEVICES, name=config.device)
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=DEVICES)))
        raise ValidationError(
            parameter="device", value=config.device, why=f"no such device is installed; use {known}"
        )
    factory: DeviceFactory = next(iter(found)).load()
    return factory(
        model=config.model,
        device=config.device,
        dtype=config.dtype,
        state_dtype=config.state_dtype,
        progress=progress,
    )


def make_probe(config: EngineConfig, logger: Any, environment: Environment) -> Probe:
    """A probe on the caller's logger, on the application's structlog, or on nothing."""
    if logger is None and not config.log_events:
        return NullProbe()
    if logger is None:
        logger = structlog.get_logger("tenure")
    return EventProbe(logger, engine=f"engine-{os.urandom(4).hex()}", clock=environment.clock)
