"""What the measures print: results on stdout, progress on stderr."""

import json
import sys

__all__ = ["print_json", "print_line", "print_progress"]


def print_json(value: object) -> None:
    """One document for a program to read."""
    print_line(json.dumps(value, indent=1))


def print_line(line: str) -> None:
    """One line for a person."""
    sys.stdout.write(line + "\n")


def print_progress(line: str) -> None:
    """How far it is."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
