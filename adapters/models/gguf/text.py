"""What a GGUF file says of text: its tokenizer, its chat template, its special tokens."""

from adapters.models.gguf.pieces import build_tokenizer
from adapters.models.gguf.reader import GgufModel
from adapters.models.gguf.vocabulary import read_vocabulary
from adapters.text.chat_format import TemplateChatFormat
from adapters.text.errors import TokenizerError
from adapters.text.opening import ModelText
from adapters.text.special_tokens import SpecialTokens
from adapters.text.template import ChatTemplate
from adapters.text.template_files import DEFAULT
from adapters.text.tokenizer import HubTokenizer

__all__ = ["open_gguf_text"]

_TEMPLATE = "tokenizer.chat_template"


def open_gguf_text(model: GgufModel, *, vocab_size: int | None = None) -> ModelText:
    """The same as :func:`adapters.text.opening.open_text`, from metadata.

    Args:
        model: an open file; its store needn't be open any more.
        vocab_size: of the model, whose embedding may have more rows than there are tokens.

    Raises:
        UnsupportedVocabulary: the tokenizer is of a kind that isn't built, or isn't whole.
        TokenizerError: it has ids that the model hasn't.
    """
    vocabulary = read_vocabulary(model.metadata)
    tokenizer = HubTokenizer(build_tokenizer(vocabulary))
    if vocab_size is not None and tokenizer.vocab_size > vocab_size:
        raise TokenizerError(
            f"{model.path.name}: the tokenizer has {tokenizer.vocab_size} ids, the model only"
            f" {vocab_size}; they don't belong together"
        )
    special = SpecialTokens(vocabulary.named, tuple(vocabulary.added))
    templates = {
        name: ChatTemplate(
            source, f"the chat template {name!r} of {model.path.name}", special.named
        )
        for name, source in _templates(model).items()
    }
    chat = TemplateChatFormat(templates, tokenizer) if templates else None
    return ModelText(tokenizer, chat, special)


def _templates(model: GgufModel) -> dict[str, str]:
    """Templates by name: the nameless one, and those under names of their own."""
    found: dict[str, str] = {}
    for key, value in model.metadata.header.metadata.items():
        if key == _TEMPLATE and isinstance(value, str):
            found[DEFAULT] = value
        elif key.startswith(f"{_TEMPLATE}.") and isinstance(value, str):
            found[key.removeprefix(f"{_TEMPLATE}.")] = value
    return found
