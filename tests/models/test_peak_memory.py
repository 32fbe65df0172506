"""What loading takes beside the model itself; the figures are those of ``peak_memory``."""

from pathlib import Path

import pytest

from tests.models.peak_memory import BOUND, measure, write_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not Path("/proc/self/clear_refs").exists(), reason="Linux counts the peak for us"
    ),
]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")],
)
def test_loading_peaks_below_1_3_times_the_model(
    stored: str, dtype: str, shards: int, tmp_path: Path
) -> None:
    """Joined projections included: neither they nor what was mapped is held twice."""
    directory = write_model(tmp_path, stored, dtype, shards, megabytes=300)
    measured = measure("tenure", directory, dtype)

    assert measured.model_bytes > 250e6
    assert 0.9 < measured.ratio < BOUND
