import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockwatt.io.rounding import to_bits


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), st.integers(2, 30))
def test_the_relative_error_is_bounded_and_rounding_again_changes_nothing(number, bits):
    rounded = to_bits(np.array([number]), bits)
    if abs(number) > 1e-300:
        assert abs(rounded[0] - number) <= abs(number) * 2.0**-bits
    np.testing.assert_array_equal(to_bits(rounded, bits), rounded)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_no_number_stays(kind):
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -3.0], dtype=kind)
    rounded = to_bits(special, 3)
    assert rounded.dtype == kind
    np.testing.assert_array_equal(rounded, special)


def test_few_bits_are_left():
    assert to_bits(np.array([0.3]), 8).tolist() == [77 / 256]
    mantissas, _ = np.frexp(to_bits(np.random.default_rng(0).random(100), 8))
    np.testing.assert_array_equal(mantissas * 256, np.rint(mantissas * 256))
