"""Jinja in a sandbox, as chat templates expect it, with bounds on time and size.

Templates come with models, from strangers. Jinja's sandbox refuses what reaches Python's insides.
It does not bound a template: nested loops run for years and ``'a' * n`` takes all memory. So every
loop, call and filter counts a step of a budget, every piece of output counts its characters, and
what makes long values of short ones looks before it leaps. Each at Jinja's own seam: the tree is
changed before it is compiled (loops, output, ``~``), and the environment is asked for the rest.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from adapters.text.budget import Budget
from adapters.text.growth import (
    bounded_filter,
    check_call,
    check_format,
    check_operator,
    counted_rounds,
)
from adapters.text.written_length import written_length

__all__ = ["RefusedByTemplate", "TemplateEnvironment", "budget_of_rendering"]

budget_of_rendering: ContextVar[Budget] = ContextVar("budget_of_rendering")
"""Set while a template runs; there is none while it is compiled, so nothing is computed then."""
_ROUNDS = "counted_rounds"
_WRITTEN = "counted_output"
_MEASURED = "measured_parts"
_WITHOUT_BOUND = frozenset({"encode", "decode", "translate"})
"""Methods of texts that may take hours, or all memory, whatever they are given."""


class RefusedByTemplate(TemplateError):
    """The template called ``raise_exception``; its argument is the message."""


class _Generation(Extension):
    """``{% generation %}``, which marks what the assistant says; here it only groups."""

    tags: set[str] = {"generation"}  # noqa: RUF012  # Jinja declares it for instances

    def parse(self, parser: Parser) -> nodes.Node:
        """The block's own content, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _SafeNamespace(Namespace):
    """A namespace without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # A template may have a variable called self.
        given = dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace may not hold {name!r}")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """What transformers gives to chat templates: the same tags, filters and functions."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=[_Generation, loopcontrols],
        )
        # Both are typed as what Jinja itself puts there.
        filters = cast("dict[str, Callable[..., Any]]", self.filters)
        filters["tojson"] = _tojson
        for name, function in list(filters.items()):
            filters[name] = bounded_filter(name, function, budget_of_rendering.get)
        filters[_ROUNDS] = _counted_rounds
        filters[_WRITTEN] = _counted_output
        filters[_MEASURED] = _measured_parts
        names = cast("dict[str, Callable[..., Any]]", self.globals)
        names["raise_exception"] = _raise_exception
        names["strftime_now"] = _strftime_now
        names["namespace"] = _SafeNamespace
        names["dict"] = _plain_dict
        for name in ("lipsum", "cycler", "joiner"):
            names.pop(name, None)  # for writers of pages; a chat has no use for them

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = cast("nodes.Template", _Measuring().visit(super()._parse(source, name, filename)))
        for loop in tree.find_all(nodes.For):
            loop.iter = _through(_ROUNDS, loop.iter)
        for output in tree.find_all(nodes.Output):
            output.nodes = [_through(_WRITTEN, _as_expression(part)) for part in output.nodes]
        for joined in tree.find_all(nodes.Concat):
            joined.nodes = [_through(_WRITTEN, part) for part in joined.nodes]
        tree.set_environment(self)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read an attribute."""
        if isinstance(obj, str | bytes) and attr in _WITHOUT_BOUND:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # a template may pass any other name
        """Count every call, and look at its arguments."""
        budget = budget_of_rendering.get()
        budget.step()
        check_call(budget, __obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Look at the operands before the result is made."""
        check_operator(budget_of_rendering.get(), operator, left, right)
        return super().call_binop(context, operator, left, right)


class _Measuring(NodeTransformer):
    """Measures what a template puts together, and what it compares.

    A list that holds another one twice, and so on, has few parts and endless text. Python compares,
    hashes and shows it without end, or overflows its stack.
    """

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802  # Jinja's name
        return _through(_MEASURED, self.generic_visit(node))

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return _through(_MEASURED, self.generic_visit(node))

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        found = self.generic_visit(node)
        return _through(_MEASURED, found) if node.ctx == "load" else found

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _through(_MEASURED, node.expr)
        for operand in node.ops:
            operand.expr = _through(_MEASURED, operand.expr)
        return node


def _through(name: str, value: nodes.Node) -> nodes.Filter:
    return nodes.Filter(cast("nodes.Expr", value), name, [], [], None, None, lineno=value.lineno)


def _as_expression(part: nodes.Node) -> nodes.Node:
    """Text of the template itself, as a value: what stands in a loop is written many times."""
    if isinstance(part, nodes.TemplateData):
        return nodes.Const(part.data, lineno=part.lineno)
    return part


def _counted_rounds(values: Iterable[Any]) -> Iterator[Any]:
    return counted_rounds(values, budget_of_rendering.get())


def _measured_parts(value: Any) -> Any:
    budget_of_rendering.get().check_extent(written_length(value))
    return value


def _counted_output(value: Any) -> Any:
    budget_of_rendering.get().write(written_length(value))
    return value


def _raise_exception(message: object) -> NoReturn:
    raise RefusedByTemplate(str(message))


def _strftime_now(format: str) -> str:  # noqa: A002  # as templates may name it
    check_format(budget_of_rendering.get(), format, ())
    return datetime.now().strftime(format)  # noqa: DTZ005  # the clock on the wall is meant


def _plain_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as a model reads it: Jinja's own filter would escape it for web pages."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
