from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from evergraph import names
from evergraph.detect import DOC, GDOC, AutoDetector, Detector, PostHoc, Softmax
from evergraph.detect.scores import Energy, Relative
from evergraph.detect.thresholds import Budget
from evergraph.errors import InputError
from evergraph.names import described, rebuilt
from evergraph_baselines.average import AverageDetector

SCORES = {name: names.load("score", name) for name in names.known("score")}
THRESHOLDS = {name: names.load("threshold", name) for name in names.THRESHOLDS}


@dataclass(frozen=True)
class Pair(GDOC):
    """A detector of another package."""


@dataclass(frozen=True)
class Odd(Energy):
    """A score of another package."""


DETECTORS: list[Detector] = [
    Softmax(),
    DOC(0.3),
    GDOC(0.6, alpha=2.0),
    AutoDetector("budget:10"),
    AverageDetector(most=0.2),
    PostHoc(Relative(Energy(2.0), weight=3), Budget(7)),
    *(PostHoc(kind()) for kind in SCORES.values()),
    *(PostHoc(Energy(), kind()) for kind in THRESHOLDS.values()),
]


@pytest.mark.parametrize("detector", DETECTORS, ids=repr)
def test_a_description_in_json_is_rebuilt_as_it_was(detector: Detector) -> None:
    written = json.dumps(described(detector))
    assert rebuilt(json.loads(written), "detector") == detector


def test_your_own_scores_are_described_but_not_rebuilt() -> None:
    class Mine(Energy):
        """Another score."""

    with pytest.raises(InputError, match="Mine"):
        rebuilt(described(PostHoc(Mine())), "detector")


@pytest.mark.parametrize("kind", ["score", "threshold"])
def test_a_part_that_was_removed_is_named(kind: str) -> None:
    removed = {"score": {"name": "max_logit"}, "threshold": {"name": "quantile", "share": 0.1}}[kind]
    description = described(PostHoc(Energy(), Budget(7))) | {kind: removed}
    with pytest.raises(InputError) as error:
        rebuilt(description, "detector")
    assert f"uses {removed['name']}, which was removed in this version. Train again" in str(error.value)


# --- plug-ins --------------------------------------------------------------------------------------------------------


@pytest.fixture
def plugins(monkeypatch):
    """Pretends that packages have registered names."""

    def install(*entries: tuple[str, str, str]) -> None:
        found = [EntryPoint(name, place, f"evergraph.{kind}s") for kind, name, place in entries]
        monkeypatch.setattr(names, "entry_points", lambda group: [entry for entry in found if entry.group == group])
        names._plugins.cache_clear()

    yield install
    names._plugins.cache_clear()


def test_a_plug_in_is_known_built_described_and_rebuilt(plugins) -> None:
    plugins(("detector", "pair", "tests.test_names:Pair"), ("score", "odd", "tests.test_names:Odd"))
    assert names.known("detector")[-1] == "pair"
    pair = names.build_detector("pair:0.25")
    assert pair == Pair(0.25)
    assert described(pair) == {"name": "pair", "threshold": 0.25, "alpha": None}
    assert rebuilt(described(pair), "detector") == pair
    assert names.build_detector("odd:3/budget:7") == PostHoc(Odd(3.0), Budget(7))
    assert rebuilt(described(PostHoc(Odd(3.0))), "detector") == PostHoc(Odd(3.0))


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([("model", "m", "no_such_package:M")], "plug-in 'm' of the package no_such_package.*ModuleNotFoundError"),
        ([("model", "m", "evergraph.nn:Missing")], "plug-in 'm'.*cannot be loaded.*AttributeError"),
        ([("model", "m", "evergraph.detect:GDOC")], "the model 'm' of the package .* is not a subclass of Model"),
        ([("model", "m", "a:M"), ("model", "m", "b:M")], "the name 'm' is used twice: by a and by b"),
        ([("model", "m", "a:M"), ("score", "m", "b:M")], "the name 'm' is used twice: by a and by b"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_named(plugins, entries, told) -> None:
    plugins(*entries)
    with pytest.raises(InputError, match=told):
        names.build_model("m")
    assert names.build_model("sgc").hops == 2


def test_a_plug_in_cannot_take_a_name_of_evergraph(plugins) -> None:
    plugins(("model", "sage", "other.package:Sage"))
    with pytest.raises(InputError, match=r"'sage' is used twice: by Evergraph and by other.package.*Uninstall other"):
        names.build_model("sage")


def test_settings_in_a_name() -> None:
    assert names.build_detector("gdoc:threshold=0.5,alpha=3") == GDOC(0.5, alpha=3.0)
    assert names.build_model("saint:sampler=node,normalise=True,hidden=8").base.hidden == 8
    for text, told in [("gdoc:0.5,threshold=0.4", "given twice"), ("gdoc:beta=1", "has: threshold, alpha")]:
        with pytest.raises(InputError, match=told):
            names.build_detector(text)
    with pytest.raises(InputError, match="given twice"):
        names.build_detector("gdoc:0.5", threshold=0.4)
    with pytest.raises(InputError, match="has no setting 'threshold'"):
        names.build_detector("energy", threshold=0.4)


def test_the_default_model_and_detector_are_chosen_in_one_place() -> None:
    from evergraph import LifelongLearner
    from evergraph.evaluation.configuration import Configuration

    detector = names.build_detector(names.DEFAULT_DETECTOR)
    assert detector == AutoDetector()
    assert Configuration().detector == LifelongLearner().detector_.detector == detector
