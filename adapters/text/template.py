"""One chat template, compiled at its first use and rendered within bounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateSyntaxError

from adapters.text.budget import Budget, TemplateLimits
from adapters.text.errors import ChatTemplateError, TemplateError, TemplateOverrun
from adapters.text.plain_data import plain, plain_message
from adapters.text.sandbox import RefusedByTemplate, TemplateEnvironment, budget_of_rendering

__all__ = ["ChatTemplate"]

_SOURCE_CHARS = 1_000_000
"""The longest templates in use have 40 000."""
_environment = TemplateEnvironment()


@attrs.define(eq=False)
class ChatTemplate:
    """A template's text; ``name`` says in errors where it comes from."""

    source: str
    name: str
    special_tokens: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """``bos_token`` and the like, as templates see them."""
    limits: TemplateLimits = attrs.field(factory=TemplateLimits)
    _compiled: Template | None = attrs.field(default=None, init=False)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[object] | None = None,
        variables: Mapping[str, object] | None = None,
        add_generation_prompt: bool,
    ) -> str:
        """Write a conversation as the model's text.

        Args:
            messages: each with a ``role``, and mostly with a ``content``.
            tools: what the model may call, as JSON schemas; ``None``: the template isn't told.
            variables: more that the template may ask for, such as ``enable_thinking``.
            add_generation_prompt: end with what an answer begins with.

        Raises:
            TemplateError: the template itself is damaged.
            ChatTemplateError: it refuses these messages, or fails on them.
            TemplateOverrun: it ran too long or wrote too much.
        """
        try:
            context: dict[str, Any] = {
                **self.special_tokens,
                **plain(variables or {}),
                "messages": [plain_message(message) for message in messages],
                "tools": None if tools is None else plain(tools),
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
            }
        except RecursionError as error:
            why = "they hold themselves, or lists in lists in lists without end"
            raise ChatTemplateError(why=why) from error
        compiled = self._compile()
        token = budget_of_rendering.set(Budget(self.limits))
        try:
            return compiled.render(context)
        except (TemplateOverrun, ChatTemplateError):
            raise
        except RefusedByTemplate as error:
            raise ChatTemplateError(why=f"{self.name} says: {error}") from error
        except SecurityError as error:
            why = f"{self.name} tries what no chat template may: {error}"
            raise TemplateError(why) from error
        except RecursionError as error:
            raise TemplateOverrun(why=f"{self.name} calls itself without end") from error
        except Exception as error:
            # A template is a program; on messages that it wasn't written for it fails like one.
            why = f"{self.name} fails on them: {type(error).__name__}: {error}"
            raise ChatTemplateError(why=why) from error
        finally:
            budget_of_rendering.reset(token)

    def _compile(self) -> Template:
        if self._compiled is None:
            if len(self.source) > _SOURCE_CHARS:
                raise TemplateError(f"{self.name} is longer than {_SOURCE_CHARS} characters")
            try:
                self._compiled = _environment.from_string(self.source)
            except TemplateSyntaxError as error:
                raise TemplateError(f"{self.name}, line {error.lineno}: {error}") from error
            except Exception as error:  # nested too deeply for Jinja or for Python
                raise TemplateError(f"{self.name} can't be compiled: {error}") from error
        return self._compiled
