"""``tenure demo``: the main job on real input, live, and audited from its event log."""

from adapters.cli.demo.command import demo

__all__ = ["demo"]
