"""Runs programs in which a comment at the end of a line names the rule that it breaks."""

import re

from ownership.lint import Config, check_source

__all__ = ["PROLOGUE", "expected", "found"]

PROLOGUE = """\
import asyncio, contextlib, copy, functools, pickle
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Optional, TypeVar, Union, cast
import attrs
import pytest
from ownership import *
from ownership.marks import Mark
import ownership as own

@attrs.frozen
class Parcel:
    carries: ClassVar[tuple[str, ...]] = ("claim",)
    claim: BatchOwned
    text: str = ""

@attrs.frozen
class Note:
    text: str

Mine = Consume[BatchOwned]
Maybe = BatchOwned | None

"""
_RULE = re.compile(r"# (OWN\d+(?: OWN\d+)*)$")


def found(program: str, config: Config | None = None) -> list[tuple[int, str]]:
    """Lines of a program, without its prologue, and the rules that they break."""
    offset = PROLOGUE.count("\n")
    findings = check_source(PROLOGUE + program, config=config)
    return sorted((finding.line - offset, finding.rule) for finding in findings)


def expected(program: str) -> list[tuple[int, str]]:
    """What the comments of a program say."""
    said = ((number, _RULE.search(line)) for number, line in enumerate(program.splitlines(), 1))
    return sorted((number, rule) for number, match in said if match for rule in match[1].split())
