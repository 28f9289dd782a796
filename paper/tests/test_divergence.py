"""The divergences of the first experiment against SciPy and by hand."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import jensenshannon

from evergraph import InputError
from evergraph_paper.exp1 import half_jeffreys, jensen_shannon, jensen_shannon_distance

weights = st.lists(st.tuples(*[st.one_of(st.just(0.0), st.floats(1e-6, 1e6))] * 2), min_size=1, max_size=12).map(
    lambda rows: np.array(rows).T
)
comparable = weights.filter(lambda drawn: drawn.any(axis=1).all())


@given(comparable)
def test_divergences_are_those_of_scipy(drawn):
    p, q = drawn
    square = jensenshannon(p, q) ** 2
    assume(not np.isnan(square))  # SciPy takes the root of what rounding left below 0
    assert jensen_shannon(p, q) == pytest.approx(square, abs=1e-12)
    assert jensen_shannon_distance(p, q) == pytest.approx(math.sqrt(square), abs=1e-6)
    assert half_jeffreys(p, q) == pytest.approx((stats.entropy(p, q) + stats.entropy(q, p)) / 2, abs=1e-12)


@given(comparable)
def test_divergences_are_symmetric_and_keep_their_bounds(drawn):
    p, q = drawn
    assert jensen_shannon(p, q) == pytest.approx(jensen_shannon(q, p), abs=1e-12)
    assert 0 <= jensen_shannon(p, q) <= math.log(2) + 1e-12
    assert jensen_shannon(p, q) <= half_jeffreys(p, q) / 2 + 1e-12  # Lin (1991)
    assert jensen_shannon(p, p) == jensen_shannon_distance(q, q) == half_jeffreys(p, p) == 0


def test_divergences_by_hand():
    p, q = [1, 3], [3, 1]
    # KL(p‖q) = KL(q‖p) = ¼ ln ⅓ + ¾ ln 3; against the midpoint, ¼ ln ½ + ¾ ln 1½.
    assert half_jeffreys(p, q) == pytest.approx(math.log(3) / 2)
    assert jensen_shannon(p, q) == pytest.approx(math.log(0.5) / 4 + 3 * math.log(1.5) / 4)
    assert jensen_shannon([2, 0], [0, 7]) == pytest.approx(math.log(2))
    assert half_jeffreys([1, 0, 1], [1, 0, 3]) < half_jeffreys([1, 0, 1], [1, 1, 3]) == math.inf


def test_the_published_statistic_does_not_compare_distributions():
    """A copy in another order is not 0 away; a curve that is lower by a factor everywhere is."""
    rng = np.random.default_rng(0)
    sample = rng.normal(0.8, 0.01, size=2000)
    assert jensen_shannon_distance(sample, rng.permutation(sample)) == pytest.approx(0.006, abs=5e-4)
    assert jensen_shannon_distance(sample, 0.9 * sample) < 1e-7


@pytest.mark.parametrize("bad", [[1, -1], [0, 0], [np.nan, 1], [np.inf, 1], [1, 2, 3], [[1, 2]], []])
@pytest.mark.parametrize("divergence", [half_jeffreys, jensen_shannon, jensen_shannon_distance])
def test_divergences_refuse_what_is_no_weights(divergence, bad):
    with pytest.raises(InputError):
        divergence(bad, [1, 1])
    with pytest.raises(InputError):
        divergence([1, 1], bad)
