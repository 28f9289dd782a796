"""The registry: names of models, detectors, scores, thresholds, encoders, regularisers and graphs, and where they are.

A class is imported when its name is first used, so this module does not load torch. Installed packages add names
through the entry-point groups ``evergraph.models``, ``.detectors``, ``.scores``, ``.thresholds``, ``.encoders``,
``.memories`` and ``.regularisers``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from evergraph.errors import InputError

__all__ = [
    "COMPARED_DETECTORS",
    "DATASETS",
    "DEFAULT_DETECTOR",
    "DEFAULT_MODEL",
    "DETECTORS",
    "ENCODERS",
    "INPUTS",
    "MEMORIES",
    "MODELS",
    "REGULARISERS",
    "SCORES",
    "THRESHOLDS",
    "build",
    "build_detector",
    "build_model",
    "described",
    "inputs_in_words",
    "known",
    "load",
    "load_dataset",
    "load_plugin",
    "rebuilt",
    "split_detectors",
    "unknown",
    "with_settings",
]

DEFAULT_MODEL, DEFAULT_DETECTOR = "sage", "auto"
COMPARED_DETECTORS = "none,gdoc:0.5,gdoc:0.75,energy,relative-energy,auto"
"""Detectors that `evergraph compare` compares by default."""

MODELS = {
    "sage": "evergraph.nn:GraphSAGE",
    "gat": "evergraph.nn:GAT",
    "gcn": "evergraph.nn:GCN",
    "sgc": "evergraph.nn:SGC",
    "jknet": "evergraph.nn:JKNet",
    "saint": "evergraph.nn:GraphSAINT",
    "mlp": "evergraph.nn:MLP",
    "ridge": "evergraph.nn:Ridge",
    "most-frequent": "evergraph.nn:MostFrequent",
}
DETECTORS = {
    "none": "evergraph.detect:Softmax",
    "doc": "evergraph.detect:DOC",
    "gdoc": "evergraph.detect:GDOC",
    "auto": "evergraph.detect:AutoDetector",
}
SCORES = {
    "msp": "evergraph.detect.scores:MSP",
    "energy": "evergraph.detect.scores:Energy",
}
"""Scores, also with the prefix ``relative-`` (`Relative`)."""
THRESHOLDS = {
    "fixed": "evergraph.detect.thresholds:Fixed",
    "conformal": "evergraph.detect.thresholds:Conformal",
    "budget": "evergraph.detect.thresholds:Budget",
    "back-test": "evergraph.detect.thresholds:BackTest",
}
MEMORIES = {
    "random": "evergraph.learning.memory:Random",
    "recent-per-class": "evergraph.learning.memory:RecentPerClass",
    "class-mean": "evergraph.learning.memory:ClassMean",
    "recent-typical": "evergraph.learning.memory:RecentTypical",
    "coverage": "evergraph.learning.memory:Coverage",
    "degree": "evergraph.learning.memory:Degree",
    "pagerank": "evergraph.learning.memory:PageRank",
}
"""Memory policies: which labelled vertices older than the window stay in training."""
ENCODERS = {
    "static": "evergraph.inputs.encoders:WordLlama",
    "minilm": "evergraph.inputs.encoders:MiniLM",
}
"""Encoders of texts that packages contain; `load_encoder` also takes the folder of a model."""
REGULARISERS: dict[str, str] = {}
"""Regularisers of this package: none. Those of the literature are in the package ``evergraph_baselines``."""
INPUTS = {
    "words": ("word", "words"),
    "classes": ("class of older neighbours", "classes of older neighbours"),
    "numbers": ("number", "numbers"),
    "encoder": ("vector of the text encoder", "vectors of the text encoder"),
    "categories": ("category", "categories"),
}
"""The blocks that a model can read, each in the singular and in the plural."""

DATASETS = {
    "metamath": "evergraph.datasets.metamath:metamath",
    "synthetic": "evergraph.datasets.synthetic:synthetic",
}
"""Graphs that need no file."""
# Names in saved files only: on the command line they would need other parts.
_COMPOSED = {
    "isomax-outputs": "evergraph.nn:IsoMaxOutputs",
    "isomax": "evergraph.detect:IsoMax",
    "post-hoc": "evergraph.detect:PostHoc",
    "relative": "evergraph.detect.scores:Relative",
}
# Names of earlier versions, which saved learners may contain.
_REMOVED = {"max_logit", "entropy", "mahalanobis", "nearest", "new_neighbours", "quantile"} | {
    *("sentinel", "bursting", "surplus", "misfit", "remote", "crowding", "smoothed", "together", "propagated")
}
_TABLES = {
    "model": MODELS,
    "detector": DETECTORS,
    "score": SCORES,
    "threshold": THRESHOLDS,
    "encoder": ENCODERS,
    "memory": MEMORIES,
    "regulariser": REGULARISERS,
}
_GROUPS = {kind: f"evergraph.{kind}s" for kind in _TABLES} | {"memory": "evergraph.memories"}
_BASES = {
    "model": "evergraph.nn:Model",
    "detector": "evergraph.detect:Detector",
    "score": "evergraph.detect.scores:Score",
    "threshold": "evergraph.detect.thresholds:Threshold",
    "encoder": "evergraph.inputs.encoders:Encoder",
    "memory": "evergraph.learning.memory:MemoryPolicy",
    "regulariser": "evergraph.learning.regularise:Regulariser",
}
_RELATIVE = "relative-"


# --- names to classes ------------------------------------------------------------------------------------------------


def known(kind: str) -> list[str]:
    """Return the names of a kind, such as "model", "detector" or "regulariser", those of plug-ins last.

    Examples
    --------
    >>> known("threshold")
    ['fixed', 'conformal', 'budget', 'back-test']
    """
    return list(dict.fromkeys([*_TABLES[kind], *(name for other, name in _plugins() if other == kind)]))


def load(kind: str, name: str) -> Any:
    """Return the class with a name.

    Examples
    --------
    >>> load("model", "sgc")
    <class 'evergraph.nn.gcn.SGC'>
    """
    plugins = [(other, entry) for (other, key), entries in _plugins().items() if key == name for entry in entries]
    own = any(name in table for table in (*_TABLES.values(), _COMPOSED))
    if len(plugins) + own > 1:
        packages = [*(["Evergraph"] if own else []), *(_package(entry) for _, entry in plugins)]
        raise InputError(
            f"the name {name!r} is used twice: by {' and by '.join(packages)}",
            fix=f"uninstall {packages[-1]}, or register another name in it",
        )
    for other, entry in plugins:
        if other == kind:
            loaded, base = load_plugin(entry), _import(_BASES[kind])
            if not (isinstance(loaded, type) and issubclass(loaded, base)):
                raise InputError(
                    f"the {kind} {name!r} of the package {_package(entry)} is not a subclass of {base.__name__}",
                    fix=f"derive it from {_BASES[kind].replace(':', '.')}",
                )
            return loaded
    place = _TABLES[kind].get(name) or _COMPOSED.get(name)
    if place is None:
        raise unknown(kind, name, known(kind))
    return _import(place)


def load_dataset(name: str) -> Any:
    """Return the graph with a name of `DATASETS`."""
    return _import(DATASETS[name])()


def load_plugin(entry: EntryPoint) -> Any:
    """Load a plug-in; the error names its package."""
    try:
        return entry.load()
    except Exception as error:
        package = _package(entry)
        raise InputError(
            f"the plug-in {entry.name!r} of the package {package} cannot be loaded ({type(error).__name__}: {error})",
            fix=f"repair or uninstall {package}",
        ) from error


@cache
def _plugins() -> dict[tuple[str, str], list[EntryPoint]]:
    found: dict[tuple[str, str], list[EntryPoint]] = {}
    for kind in _TABLES:
        for entry in entry_points(group=_GROUPS[kind]):
            found.setdefault((kind, entry.name), []).append(entry)
    return found


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def unknown(kind: str, name: str, choices: list[str], fix: str = "") -> InputError:
    """Return the error for a name that is none of the choices."""
    near = get_close_matches(name, choices, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    found = f"choose from {fix or ', '.join(choices)}" if fix or choices else "install a package that registers one"
    return InputError(f"there is no {kind} {name!r}{meant}", fix=found)


# --- text to objects -------------------------------------------------------------------------------------------------


def build(kind: str, text: str, **options: float | str | None) -> Any:
    """Return a model, score, threshold, detector or regulariser from its name and settings.

    Parameters
    ----------
    kind
        "model", "detector", "score", "threshold" or "regulariser".
    text
        A name, ``name:value`` for its first setting, or ``name:setting=value,setting=value``.
    **options
        More settings; None is ignored. A model that wraps another one, such as GraphSAINT, passes on settings that it
        does not have itself.

    Examples
    --------
    >>> build("model", "sgc:hops=3")
    SGC(hops=3)
    >>> build("model", "saint", hidden=64).base
    JKNet(hidden=64, layers=2, dropout=0.5)
    >>> build("model", "sgc", hidden=8)
    Traceback (most recent call last):
    evergraph.errors.InputError: the model sgc has no setting 'hidden'. Leave it out; sgc has: hops.
    """
    name, colon, rest = text.partition(":")
    if name not in known(kind):
        raise unknown(kind, name, known(kind))
    try:
        built: Any = load(kind, name)()
    except TypeError as error:
        raise InputError(f"the {kind} {name} needs more than a name ({error})", fix="build it in Python") from error
    base: Any = getattr(built, "base", None)
    own, inner = ({entry.name: entry for entry in fields(part)} if is_dataclass(part) else {} for part in (built, base))
    settings = {key: entry for key, entry in (inner | own).items() if key != "base"}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    for part in rest.split(",") if colon else []:
        key, equals, value = part.partition("=")
        if not equals:
            key, value = next(iter(own), "value"), part
        if key in given:
            raise InputError(f"the setting {key!r} of the {kind} {name} is given twice", fix="give it once")
        given[key] = _parse(value, text, settings[key]) if key in settings else value
    return with_settings(kind, built, **given)


def with_settings(kind: str, part: Any, **given: Any) -> Any:
    """Return a model, score, threshold or detector with some of its settings changed.

    Examples
    --------
    >>> with_settings("detector", build_detector("gdoc:0.5"), alpha=3.0)
    GDOC(threshold=0.5, alpha=3.0)
    """
    base: Any = getattr(part, "base", None)
    # A setting that is a part of its own, such as the threshold of a score, cannot be a number.
    own, inner = (
        [entry.name for entry in fields(one) if not is_dataclass(getattr(one, entry.name))] if is_dataclass(one) else []
        for one in (part, base)
    )
    for key in given:
        if key not in (*own, *inner):
            name = _name_of(kind, type(part))
            has = f"has: {', '.join(dict.fromkeys([*inner, *own]))}" if own or inner else "has no settings"
            if name == "post-hoc":  # which no command calls by this name
                raise InputError(
                    f"a detector of a score and a threshold has no setting {key!r}",
                    fix="name both, as in energy/fixed:0.5",
                )
            raise InputError(f"the {kind} {name} has no setting {key!r}", fix=f"leave it out; {name} {has}")
    if passed_on := {key: value for key, value in given.items() if key not in own}:
        part = replace(part, base=replace(base, **passed_on))
    return replace(part, **{key: value for key, value in given.items() if key in own})


def build_model(text: str, **options: float | str | None) -> Any:
    """Return a model from its name and settings, as in `build`."""
    return build("model", text, **options)


def build_detector(text: str, **options: float | str | None) -> Any:
    """Return a detector from its name and settings, as in `build`, or from a score and a threshold.

    Examples
    --------
    >>> build_detector("gdoc:0.5", alpha=3.0)
    GDOC(threshold=0.5, alpha=3.0)
    >>> build_detector("relative-energy/budget:50").threshold
    Budget(most=50)
    >>> build_detector("energy").threshold  # the default of `PostHoc`
    BackTest(share=0.2, weight=100.0, most=0.3, level=None)
    """
    by, slash, rule = text.partition("/")
    name = by.partition(":")[0]
    plain = name.removeprefix(_RELATIVE)
    detectors, scores = known("detector"), known("score")
    if name in detectors and not slash:
        return build("detector", text, **options)
    if plain not in scores:
        relative = [_RELATIVE + score for score in SCORES]
        more = f"; {', '.join(relative)}; and any score with a threshold: /{', /'.join(known('threshold'))}"
        choices = [*detectors, *scores]
        raise unknown("detector", text, [*choices, *relative], ", ".join(choices) + more)
    if given := [option for option, value in options.items() if value is not None]:
        raise InputError(f"the detector {text} has no setting {given[0]!r}", fix=f"write {plain}/fixed:0.5")
    score = build("score", by.removeprefix(_RELATIVE))
    if name != plain:
        if not score.reads_outputs:
            raise InputError(f"{plain} does not depend on the model, so it cannot be relative", fix=f"write {plain}")
        score = load("score", "relative")(score)
    return load("detector", "post-hoc")(score, *([build("threshold", rule)] if slash else []))


def split_detectors(text: str) -> list[str]:
    """Return the detectors of a comma-separated list, each once.

    Examples
    --------
    >>> split_detectors("none, gdoc:threshold=0.5,alpha=3, energy,none")
    ['none', 'gdoc:threshold=0.5,alpha=3', 'energy']
    """
    found: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return list(dict.fromkeys(found))


def _parse(value: str, text: str, setting: Field[Any]) -> Any:
    kind = str(setting.type)
    if "bool" in kind and value in ("True", "False"):
        return value == "True"
    if "None" in kind and value == "None":
        return None
    if "float" not in kind and "int" not in kind:
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{value!r} in {text!r} is not a number", fix="write a number, as in gdoc:0.5")
    if "float" in kind:
        return number
    if not number.is_integer():
        raise InputError(f"{value!r} in {text!r} is not a whole number", fix="write one, as in energy/budget:100")
    return int(number)


# --- objects to JSON and back ----------------------------------------------------------------------------------------


def described(value: Any) -> Any:
    """Describe a model or detector as a dict of its name and settings, for JSON; plain values stay as they are.

    A class without a registered name is described by its own name, which `rebuilt` refuses.

    Examples
    --------
    >>> from evergraph.nn import SGC
    >>> described(SGC(hops=3))
    {'name': 'sgc', 'hops': 3}
    """
    if (kind := _kind_of(value)) is not None:
        settings = fields(value) if is_dataclass(value) else ()
        version = {"version": value.version} if kind == "detector" and value.version else {}
        parts = {entry.name: described(getattr(value, entry.name)) for entry in settings}
        return {"name": _name_of(kind, type(value))} | version | parts
    if isinstance(value, tuple):
        return [described(part) for part in value]
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return getattr(value, "__qualname__", type(value).__qualname__)


def rebuilt(description: Mapping[str, Any] | str | None, what: str) -> Any:
    """Return the model or detector with a description.

    Examples
    --------
    >>> rebuilt({"name": "sgc", "hops": 3}, "model")
    SGC(hops=3)
    """
    if description is None:
        return None
    settings = {"name": description} if isinstance(description, str) else dict(description)
    name = settings.pop("name")
    kinds = [kind for kind in _TABLES if name in known(kind)] or ([what] if name in _COMPOSED else [])
    kinds.sort(key=lambda kind: kind != what)
    if not kinds and name in _REMOVED:
        raise InputError(
            f"the {what} uses {name}, which was removed in this version",
            fix="train again, or use the version that saved it",
        )
    if not kinds:
        raise InputError(
            f"the {what} is your own ({name}), which a file cannot contain",
            fix=f"install the package that registers {name}, or pass it: load(…, {what}=…)",
        )
    found = load(kinds[0], name)
    if settings.pop("version", 0) != getattr(found, "version", 0):
        raise InputError(
            f"the {what} is another version of {name}, whose saved state has another meaning",
            fix="use the version of Evergraph that saved it, or train again",
        )
    return found(**{key: _rebuilt_part(part, what) for key, part in settings.items()})


def _rebuilt_part(part: Any, what: str) -> Any:
    if isinstance(part, list):
        return tuple(_rebuilt_part(one, what) for one in part)
    return rebuilt(part, what) if isinstance(part, dict) else part


def _kind_of(value: Any) -> str | None:
    # An object's base class is loaded already, so nothing is imported here.
    for kind, place in _BASES.items():
        module, _, name = place.partition(":")
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and isinstance(value, base):
            return kind
    return None


def _name_of(kind: str, of: type) -> str:
    for name, place in (_TABLES[kind] | _COMPOSED).items():
        if place.endswith(f":{of.__name__}") and _import(place) is of:
            return name
    for (other, name), entries in _plugins().items():
        for entry in entries:
            same_package = entry.module.partition(".")[0] == of.__module__.partition(".")[0]
            if other == kind and same_package and load_plugin(entry) is of:
                return name
    return of.__qualname__


# --- inputs ----------------------------------------------------------------------------------------------------------


def inputs_of_version_0_1(vocabulary: Mapping[str, Any]) -> str:
    """Return what a learner reads whose settings have no inputs: words or, without names of columns, numbers."""
    return "numbers" if vocabulary.get("names", ()) is None else "words"


def inputs_in_words(blocks: Iterable[str]) -> str:
    """Return the blocks that a model reads as text; a mapping has their numbers of columns.

    Examples
    --------
    >>> inputs_in_words(["words", "classes"]), inputs_in_words({"words": 2278, "numbers": 3})
    ('words, classes of older neighbours', 'words (2,278), numbers (3)')
    """
    columns = blocks if isinstance(blocks, Mapping) else {}
    return ", ".join(
        INPUTS.get(block, ("", block))[1] + (f" ({columns[block]:,})" if block in columns else "") for block in blocks
    )
