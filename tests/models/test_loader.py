"""What the loader compares before it reads: number types, by the names that files use."""

import pytest

from adapters.models.errors import MistypedTensor
from adapters.models.loader import Asked
from adapters.models.store import TensorFacts


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "Q4_K", "IQ4_NL", "TQ1_0", "MXFP4"])
def test_floats_and_what_becomes_floats_pass(dtype: str) -> None:
    """A GGUF store dequantises what it gives; the facts are those of the file."""
    Asked(shapes={"a": (2,)}).check({"a": TensorFacts((2,), dtype, 8)})


@pytest.mark.parametrize(
    "dtype", ["I8", "I64", "U8", "U32", "BOOL", "F8_E4M3", "F6_E2M3", "F4", "C64"]
)
def test_what_is_no_weight_by_itself_is_refused_with_its_type(dtype: str) -> None:
    """Among them the floats of 8 bits and less, whose scales are elsewhere."""
    with pytest.raises(MistypedTensor, match=f"a holds {dtype}"):
        Asked(shapes={"a": (2,)}).check({"a": TensorFacts((2,), dtype, 8)})
