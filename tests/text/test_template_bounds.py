"""Templates of strangers: what they may not reach, and how long and large they may be."""

import time

import pytest

from adapters.text.budget import TemplateLimits
from adapters.text.errors import ChatTemplateError, TemplateError, TemplateOverrun
from adapters.text.template import ChatTemplate
from kernel.errors import ModelError, ValidationError
from tests.text.conversations import said

TIGHT = TemplateLimits(steps=20_000, chars=100_000, seconds=0.5)


def render(source: str, *messages: dict[str, object], limits: TemplateLimits = TIGHT) -> str:
    template = ChatTemplate(source, "the template", limits=limits)
    return template.render(messages or (said("user", "hi"),), add_generation_prompt=True)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ (messages|map(attribute='__class__')|list)[0].__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format(1).x.y }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ dict.fromkeys([1]).x }}",
        "{{ '\u00fc\u0101'.encode('punycode') }}",
        "{{ 'a'.translate({97: 'b'}) }}",
        "{{ cycler('a').x }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_template_reaches_nothing_of_python(source: str) -> None:
    """Each is refused, whatever it would have shown; the process goes on."""
    with pytest.raises((TemplateError, ChatTemplateError)):
        render(source)


def test_what_a_format_string_reaches_is_empty() -> None:
    """The sandbox's own: an attribute that is not safe is undefined there."""
    assert "class" not in render("{{ '{0.__class__}'.format(messages) }}")


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in 'x' * 9999 %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(99) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for m in [[1, 2]] recursive %}{{ loop([[1, 2]]) }}{% endfor %}",
    ],
)
def test_a_template_without_end_is_stopped(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(TemplateOverrun):
        render(source)

    assert time.monotonic() - start < 10


LOOP = "{% set ns = namespace(s='a') %}{% for i in range(60) %}BODY{% endfor %}"
GROWING = [
    "ns.s ~ ns.s",
    "ns.s + ns.s",
    "ns.s * 20",
    "ns.s.replace('a', 'aaaaaaaaaaaaaaaaaaaa')",
    "ns.s | replace('a', 'aaaaaaaaaaaaaaaaaaaa')",
    "ns.s.join(['a', 'a', 'a'] * 9)",
    "['a', 'a', 'a'] | join(ns.s) ~ ns.s",
    "(ns.s ~ '\n') | indent(99999)",
    "'%s%s' % (ns.s, ns.s)",
    "'%s%s' | format(ns.s, ns.s)",
    "'{}{}'.format(ns.s, ns.s)",
]


@pytest.mark.parametrize("expression", GROWING)
def test_a_text_that_grows_is_stopped(expression: str) -> None:
    """Sixty doublings of one letter are more than any memory."""
    body = "{% set ns.s = EXPRESSION %}{{ '' if ns.s else '' }}".replace("EXPRESSION", expression)
    with pytest.raises(TemplateOverrun):
        render(LOOP.replace("BODY", body))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * [1] }}",
        "{{ 'a'.center(10**9) }}",
        "{{ 'a' | center(10**9) }}",
        "{{ 'a'.ljust(width=10**9) if false else 'a'.ljust(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**9, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10**9) }}",
        "{{ 'a\tb'.expandtabs(10**9) }}",
        "{{ (5).to_bytes(10**9, 'big') }}",
        "{{ strftime_now('%1000000000Y') }}",
        "{{ ('%9999d' * 11) % ((1,) * 11) }}",
        "{{ ('%*d' * 2) % (60000, 1, 60000, 1) }}",
        "{{ ('{:9999}' * 11).format(*([1] * 11)) }}",
        "{{ '{:{}}'.format(1, '9') }}",
        "{{ [['a'] * 9] | sum(start=[]) }}",
        "{{ range(30000) | list | select | select | list }}",
        "{{ 9 ** 999999 }}",
        "{{ [1] | batch(10**9, 'x') | list }}",
        LOOP.replace("BODY", "{% set ns.s = [ns.s, ns.s] %}") + "{{ ns.s }}",
        LOOP.replace("BODY", "{% set ns.s = [ns.s, ns.s] %}") + "{{ ns.s | tojson }}",
        LOOP.replace("BODY", "{% set ns.s = {'a': ns.s, 'b': ns.s} %}") + "{{ ns.s | string }}",
        LOOP.replace("BODY", "{% set ns.s = (ns.s, ns.s) %}") + "{{ '%s' % [ns.s] }}",
        LOOP.replace("BODY", "{% set ns.s = [ns.s, ns.s] %}") + "{{ [ns.s] | join }}",
        LOOP.replace("BODY", "{% set ns.s = '%(a)s%(a)s' % {'a': ns.s} %}"),
        LOOP.replace("BODY", "{% set ns.s = 9 if i == 0 else ns.s * ns.s %}"),
        LOOP.replace("BODY", "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"),
        "{% for i in range(9999) %}0123456789{% endfor %}{% for i in range(9999) %}0{% endfor %}x",
    ],
)
def test_a_value_that_would_fill_the_memory_is_not_made(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(TemplateOverrun):
        render(source)

    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "use",
    [
        "ns.s == ns.t",
        "{ns.s: 1}",
        "[ns.s, ns.t] | sort",
        "[ns.s].index(ns.t)",
        "raise_exception(ns.s)",
    ],
)
def test_lists_in_lists_without_end_are_not_put_together(use: str) -> None:
    """To compare or show them, Python would take hours at once, or overflow its stack."""
    twice = LOOP.replace("BODY", "{% set ns.s = (ns.s, ns.s) %}{% set ns.t = (ns.t, ns.t) %}")
    deep = "{% set ns = namespace(s=()) %}{% for i in range(9999) %}BODY{% endfor %}"
    deep = deep.replace("BODY", "{% set ns.s = (ns.s,) %}")
    for source in (twice.replace("s='a'", "s='a', t='a'"), deep):
        with pytest.raises(TemplateOverrun):
            render(f"{source}{{{{ {use} }}}}")


def test_large_values_together_are_bounded() -> None:
    """Each may be made; to keep them all takes all memory."""
    body = "{% set ns.l = ns.l + ['a' * 99000] %}"
    source = "{% set ns = namespace(l=[]) %}{% for i in range(999) %}BODY{% endfor %}"
    with pytest.raises(TemplateOverrun, match="100000 characters"):
        render(source.replace("BODY", body))


@pytest.mark.parametrize(
    "source",
    ["{{ 'Until 20991231: %s' % 1 }}", "{{ 'Until 20991231, {{{}}}'.format(1) }}"],
)
def test_a_date_is_no_width(source: str) -> None:
    assert "20991231" in render(source)


def test_messages_that_hold_themselves_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ChatTemplateError, match="hold themselves"):
        render("{{ 1 }}", said("user", endless))


def test_a_key_that_is_no_text_is_shown_by_its_type() -> None:
    assert "<tuple>" in render("{{ messages[0].content }}", said("user", {(1, 2): 3}))


def test_a_long_conversation_is_no_overrun() -> None:
    """The bounds are far above what conversations need."""
    messages = [said(("user", "assistant")[n % 2], "word " * 100) for n in range(2000)]
    source = "{% for m in messages %}{{ m.role ~ m.content | trim }}{% endfor %}"

    assert len(render(source, *messages, limits=TemplateLimits())) > 1_000_000


def test_a_long_message_may_be_looked_at_often() -> None:
    messages = [said("user", "a" * 1_000_000), said("user", "hi"), said("user", "b" * 1_000_000)]
    source = "{% for _ in range(700) %}{{ messages[0] == messages[2] }}{% endfor %}"

    assert "False" in render(source, *messages, limits=TemplateLimits(seconds=20))


def test_a_callers_object_is_shown_as_its_name() -> None:
    """The sandbox knows Python's types; of an image with a method ``save`` it knows nothing."""

    class Image:
        def save(self, path: str) -> str:
            return f"saved to {path}"

    source = "{{ messages[0].content[0].image }}{{ messages[0].content[0].image.save('x') }}"
    with pytest.raises(ChatTemplateError, match="save"):
        render(source, said("user", [{"image": Image()}]))
    assert render("{{ messages[0].content[0].image }}", said("user", [{"image": Image()}])) == (
        "<Image>"
    )


def test_errors_say_whose_fault_it_is() -> None:
    """The template's own words where it speaks; else what failed, and in which line."""
    with pytest.raises(ChatTemplateError, match="the template says: no tools here") as said_by:
        render("{{ raise_exception('no tools here') }}")
    with pytest.raises(TemplateError, match="the template, line 2: ") as damaged:
        render("{{ 1 }}\n{% if %}")
    with pytest.raises(TemplateError, match="No filter named 'nosuch'"):
        render("{{ 1 | nosuch }}")
    with pytest.raises(ChatTemplateError, match="fails on them: UndefinedError"):
        render("{{ nothing.at.all }}")
    with pytest.raises(TemplateError, match="longer than"):
        render("x" * 2_000_000)

    assert isinstance(said_by.value, ValidationError)
    assert isinstance(damaged.value, ModelError)


def test_a_template_is_told_the_time_and_may_leave_a_loop() -> None:
    source = "{{ strftime_now('%Y') | int > 2000 }}{% for c in 'abc' %}{% if c == 'b' %}{% break %}"

    assert render(source + "{% endif %}{{ c }}{{ loop.length }}{% endfor %}") == "Truea3"
