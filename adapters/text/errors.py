"""What can be wrong with a model's text files, and with messages that its template refuses."""

from kernel.errors import ModelError, ValidationError

__all__ = [
    "ChatTemplateError",
    "TemplateError",
    "TemplateOverrun",
    "TokenizerError",
    "TokenizerMissing",
]


class TokenizerError(ModelError):
    """A file of the tokenizer is damaged, or the files contradict each other."""


class TokenizerMissing(TokenizerError):
    """The directory holds no tokenizer that can be read."""


class TemplateError(ModelError):
    """The chat template itself is damaged: it is no Jinja, or it names what doesn't exist."""


class ChatTemplateError(ValidationError):
    """The template refuses these messages, or can't say where the last answer ends."""

    def __init__(self, *, why: str, value: object = "...") -> None:
        super().__init__(parameter="messages", value=value, why=why)


class TemplateOverrun(ChatTemplateError):
    """The template was stopped: it ran too long, or wrote or asked for too much."""
