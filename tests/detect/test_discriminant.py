"""The discriminant of unseen classes: its record, its direction, and the prior that the package ships."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from evergraph.detect import discriminant as module
from evergraph.detect.discriminant import (
    FILE,
    Prior,
    SignalRecord,
    contributions,
    discriminant,
    log_odds,
    probability_of,
    shipped_prior,
    standardised,
)
from evergraph.detect.signals import NAMES
from evergraph.storage.decoding import InvalidJsonError

WIDTH = len(NAMES)
RNG = np.random.default_rng(5)


def slice_of(known: int, unseen: int, shift: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Values, hidden values, and which vertices are known and unseen; unseen ones are shifted in three signals."""
    values = RNG.normal(1.0, 2.0, (known + unseen, WIDTH))
    values[known:, :3] += shift
    hidden = values + RNG.normal(0.5, 1.0, values.shape)
    mask = np.arange(known + unseen) < known
    return values, hidden, mask, ~mask


def grown(*slices: tuple[np.ndarray, ...]) -> SignalRecord:
    record = SignalRecord.start()
    for values, hidden, known, unseen in slices:
        record = record.grown(values, hidden, known, unseen, np.full(len(values), 0.25))
    return record


SLICES = [slice_of(60, 0), slice_of(80, 5), slice_of(40, 20)]


def test_signals_are_standardised_by_the_known_vertices_of_past_slices() -> None:
    record = grown(*SLICES)
    means = np.array([values[known].mean(0) for values, _, known, _ in SLICES])
    squares = np.array([(values[known] ** 2).mean(0) for values, _, known, _ in SLICES])
    mean, deviation = means.mean(0), np.sqrt(squares.mean(0) - means.mean(0) ** 2)
    new = RNG.normal(size=(7, WIDTH))
    assert np.allclose(standardised(new, record), np.clip((new - mean) / deviation, -6, 6))
    assert record.slices.tolist() == [3, 2]
    assert len(record.known_scores) == 180


def test_without_a_past_the_slice_itself_standardises() -> None:
    values = RNG.normal(3.0, 2.0, (50, WIDTH))
    found = standardised(values, SignalRecord.start())
    assert np.allclose(found.mean(0), 0)
    assert np.allclose(found.std(0), 1)


def test_the_direction_is_that_of_linear_discriminant_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PRIOR_WEIGHT", "_HIDDEN_WEIGHT", "_RIDGE"):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(module, "_SMALL", 0.0)
    values, _, known, unseen = slice_of(400, 300)
    record = SignalRecord.start().grown(values, values, known, unseen, np.zeros(700))
    inputs = standardised(values, record)
    scores = discriminant(inputs, record, np.zeros(WIDTH))[:, 0]
    # With the covariance of known vertices alone.
    centred = np.concatenate([inputs[known], inputs[known] - inputs[known].mean(0) + inputs[unseen].mean(0)])
    judge = LinearDiscriminantAnalysis(solver="lsqr").fit(centred, np.repeat([0, 1], 400))
    expected = judge.decision_function(inputs)
    assert np.corrcoef(scores, expected)[0, 1] > 0.9999
    assert scores[unseen].mean() > 0 > scores[known].mean()


def test_the_second_score_is_in_deviations_from_known_vertices() -> None:
    record = grown(*SLICES)
    known = np.concatenate([standardised(values[mask], record) for values, _, mask, _ in SLICES])
    scores = discriminant(known, record, np.full(WIDTH, 0.3))[:, 1]
    assert abs(scores.mean()) < 0.2
    assert 0.8 < scores.std() < 1.2


def test_the_graphs_own_past_overrules_the_prior() -> None:
    wrong = np.zeros(WIDTH)
    wrong[:3], wrong[3] = -1.0, 1.0  # the prior expects the opposite of what this graph shows
    before, after = grown(*[slice_of(100, 0)] * 3), grown(*[slice_of(100, 0)] * 3, *[slice_of(100, 60)] * 4)
    values, _, known, unseen = slice_of(200, 200)

    def gap(record: SignalRecord) -> float:
        scores = discriminant(standardised(values, record), record, wrong)[:, 0]
        return float(scores[unseen].mean() - scores[known].mean())

    assert gap(after) > 0 > gap(before)


def test_a_silent_signal_does_not_matter() -> None:
    slices = [(values.copy(), hidden.copy(), known, unseen) for values, hidden, known, unseen in SLICES]
    for values, hidden, _, _ in slices:
        values[:, 5] = hidden[:, 5] = 7.0
    record = grown(*slices)
    new = RNG.normal(size=(9, WIDTH))
    other = new.copy()
    other[:, 5] = -3.0
    prior, high = np.full(WIDTH, 0.2), np.full(WIDTH, 0.2)
    high[5] = 5.0
    first = discriminant(standardised(new, record), record, prior)
    assert np.allclose(first, discriminant(standardised(other, record), record, prior))
    assert np.allclose(first, discriminant(standardised(new, record), record, high))


def test_slices_without_known_vertices_teach_nothing_but_births() -> None:
    record = grown(*SLICES)
    values, hidden, _, _ = slice_of(0, 6)
    after = record.grown(values, hidden, np.zeros(6, bool), np.ones(6, bool), np.zeros(6))
    assert after.slices.tolist() == [3, 3]
    assert np.array_equal(after.known_products, record.known_products)


def test_a_record_is_saved_and_refuses_other_shapes() -> None:
    record = grown(*SLICES)
    again = SignalRecord.from_arrays(record.arrays())
    assert all(np.array_equal(value, again.arrays()[name]) for name, value in record.arrays().items())
    with pytest.raises(ValueError, match="another shape"):
        SignalRecord.from_arrays({**record.arrays(), "known": np.zeros(3)})
    with pytest.raises(KeyError):
        SignalRecord.from_arrays({"known": record.known})


def test_a_record_without_slices_is_saved_too() -> None:
    """Tensors that share memory cannot be saved as safetensors."""
    values = RNG.normal(size=(3, WIDTH))
    nobody = np.zeros(3, bool)
    for record in (SignalRecord.start(), SignalRecord.start().grown(values, values, nobody, nobody, values[:, 0])):
        data = save({name: torch.from_numpy(value) for name, value in record.arrays().items()})
        again = SignalRecord.from_arrays({name: value.numpy() for name, value in load(data).items()})
        assert all(np.array_equal(value, again.arrays()[name]) for name, value in record.arrays().items())


def test_probabilities_are_strictly_between_0_and_1() -> None:
    found = probability_of(np.array([-1e9, 0.0, 1e9]))
    assert ((found > 0) & (found < 1)).all()
    assert found[1] == 0.5


# --- the prior in the package ----------------------------------------------------------------------------------------


def test_the_shipped_prior_has_a_number_for_each_signal_and_nothing_of_a_vertex() -> None:
    data = (module.resources.files("evergraph.detect") / FILE).read_bytes()
    content = json.loads(json.loads(data)["content"])
    assert set(content) == {"format", "format_version", "signals", "weights", "threshold", "births", "graphs"}
    assert list(content["signals"]) == list(NAMES)
    assert all(isinstance(value, float) for value in content["signals"].values())
    assert len(content["weights"]) == 3
    assert len(content["graphs"]) == 21
    assert len(data) < 5_000


def test_the_shipped_prior_expects_unseen_vertices_where_one_would() -> None:
    prior = shipped_prior()
    expected = dict(zip(NAMES, prior.unseen, strict=True))
    for name in ("msp", "entropy", "label_mass", "known_distance", "ridge", "bayes_factor", "slice_density"):
        assert expected[name] > 0, name
    assert (prior.weights[:2] > 0).all()
    assert -4 < prior.threshold < 0


def test_a_damaged_prior_is_refused() -> None:
    prior = shipped_prior()
    data = prior.to_json()
    again = Prior.from_json(data)
    assert repr(again) == repr(prior)
    assert np.array_equal(again.unseen, prior.unseen)
    with pytest.raises(InvalidJsonError, match="not those that were saved"):
        Prior.from_json(
            data.replace(b'"msp\\\\": 0', b'"msp\\\\": 1', 1) if b"\\\\" in data else data.replace(b"0.", b"1.", 1)
        )


def test_log_odds_are_a_weighted_sum() -> None:
    prior = Prior(np.zeros(WIDTH), np.array([2.0, 3.0, -1.0]), 0.0, (1.0, 1.0), ())
    assert log_odds(np.array([[1.0, 2.0], [0.0, 0.0]]), prior).tolist() == [7.0, -1.0]


def test_contributions_of_signals_add_up_to_the_log_odds() -> None:
    generator, width = np.random.default_rng(5), len(NAMES)
    record, prior = SignalRecord.start(), shipped_prior()
    for _ in range(3):
        values = generator.normal(size=(40, width))
        unseen = np.arange(40) < 5
        record = record.grown(values, values + 0.3, ~unseen, unseen, generator.random(40))
    new = standardised(generator.normal(size=(7, width)), record)
    odds = log_odds(discriminant(new, record, prior.unseen), prior)
    rest = odds - contributions(new, record, prior).sum(1)
    np.testing.assert_allclose(rest, rest[0])
    assert np.ptp(odds) > 0.1
