"""Runs torch code in float64 throughout, where it asks for float32.

Models of transformers cast to float32 in 3 to 21 places each: norms, softmax, rotary tables, the
scan's inputs, states, routers, logits. Under :func:`double_precision` each of those casts goes to
float64, so that what is compared is what the code computes and not how it rounds.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["double_precision"]


@contextmanager
def double_precision() -> Generator[set[str]]:
    """Within it, every float32 that a torch call names is a float64.

    New floating tensors without a type are float64 as well. What it gives are the names of calls
    out of which a float32 tensor came nevertheless; there should be none.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    widening = _Widening()
    try:
        with widening:
            yield widening.leaks
    finally:
        torch.set_default_dtype(default)


class _Widening(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.leaks: set[str] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        result = func(
            *(_widened(each) for each in args),
            **{name: _widened(each) for name, each in (kwargs or {}).items()},
        )
        if isinstance(result, Tensor) and result.dtype is torch.float32:
            self.leaks.add(getattr(func, "__name__", str(func)))
        return result


def _widened(argument: Any) -> Any:
    return torch.float64 if argument is torch.float32 else argument
