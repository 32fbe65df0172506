"""``python -m kernel.testing``: the explorer and the simulation on a command line."""

import argparse
import sys
from collections.abc import Sequence

from kernel.testing.explorer import command as explorer
from kernel.testing.simulation import command as simulation

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0: nothing is wrong, 1: something is, 2: wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m kernel.testing")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    explorer.add_commands(commands)
    simulation.add_commands(commands)
    given = parser.parse_args(arguments)
    code: int = given.run(given)
    return code


if __name__ == "__main__":
    sys.exit(main())
