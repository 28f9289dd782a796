"""A learner on disk: its weights as safetensors, all else as JSON, and one commit point.

::

    FOLDER/
      learner.json                      settings, classes, words, and size and hash of the weights
      weights-0123456789ab.safetensors  written once under a name of its own

Saving writes the weights under a new name and then replaces ``learner.json`` by an atomic rename. A process killed at
any moment leaves the learner that was there or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensors_to

from evergraph.detect import DETECTORS
from evergraph.errors import DamagedLearnerError, EvergraphError, InputError
from evergraph.files import sync_folder, write_synced
from evergraph.nn.base import Model
from evergraph.nn.catalogue import MODELS
from evergraph.vocabulary import Vocabulary

if TYPE_CHECKING:
    from evergraph.learner import LifelongLearner

__all__ = ["load", "save"]

FORMAT = "evergraph learner"
FORMAT_VERSION = 1
MANIFEST = "learner.json"

_PLAIN = ("restart", "steps", "lr", "weight_decay", "text", "seed", "kernels")  # settings that JSON holds as they are
_Learner = TypeVar("_Learner", bound="LifelongLearner")


def save(learner: LifelongLearner, folder: Path) -> None:
    """See `LifelongLearner.save`."""
    if learner.weights_ is None or learner.vocabulary_ is None:
        raise EvergraphError("the learner has not learnt anything yet, so there is nothing to save.")
    tensors = {f"weights/{name}": value for name, value in learner.weights_.items()}
    tensors |= {f"detector/{name}": value for name, value in learner.detector_state_.items()}
    data = tensors_to({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    digest = hashlib.sha256(data).hexdigest()
    vocabulary, name = learner.vocabulary_, f"weights-{digest[:12]}.safetensors"
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "settings": {name: getattr(learner, name) for name in _PLAIN} | {"device": str(learner.device)},
        "model": _described(learner.model, MODELS),
        "detector": _described(learner.detector, DETECTORS),
        "classes": list(learner.classes_),
        "vocabulary": {"names": vocabulary.names, "width": vocabulary.width, "text": vocabulary.text},
        "tasks": learner.tasks_,
        "time": learner.time_,
        "lr": learner.lr_,
        "losses": learner.losses_,
        "weights": {"file": name, "bytes": len(data), "sha256": digest},
    }
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    weights, staged = folder / name, folder / f"{MANIFEST}.new"
    new = not weights.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_synced(weights, data)
        write_synced(staged, _sealed(content))
        sync_folder(folder)
        staged.replace(folder / MANIFEST)  # the commit point
    except OSError as error:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
            if new:
                weights.unlink(missing_ok=True)
        raise EvergraphError(
            f"{folder}: the learner could not be saved ({error.strerror or error}); what was there is unchanged."
        ) from error
    try:
        sync_folder(folder)
    except OSError as error:
        raise EvergraphError(
            f"{folder}: the learner is saved, but the disk did not confirm it ({error.strerror or error}); "
            "save it again."
        ) from error
    with contextlib.suppress(OSError):  # the learner is saved; what is left over goes with the next save
        for other in folder.glob("weights-*.safetensors"):
            if other != weights:
                other.unlink()


def load(kind: type[_Learner], folder: Path, model: Model | torch.nn.Module | None) -> _Learner:
    """See `LifelongLearner.load`."""
    content = _unsealed(folder)
    try:
        settings = dict(content["settings"])
        built = model if model is not None else _built(content["model"], MODELS, folder)
        learner = kind(built, _built(content["detector"], DETECTORS, folder), **settings)
        vocabulary = content["vocabulary"]
        names = None if vocabulary["names"] is None else tuple(vocabulary["names"])
        tensors = _read_weights(folder, content["weights"])
    except (LookupError, TypeError, AttributeError) as error:
        raise _damaged(folder / MANIFEST, f"it lacks or distorts {error}") from error
    learner.weights_ = {k.removeprefix("weights/"): v for k, v in tensors.items() if k.startswith("weights/")}
    learner.weights_ = {name: value.to(learner.device) for name, value in learner.weights_.items()}
    learner.detector_state_ = {k.removeprefix("detector/"): v for k, v in tensors.items() if k.startswith("detector/")}
    learner.vocabulary_ = Vocabulary(names, vocabulary["width"], vocabulary["text"])
    learner.classes_ = tuple(content["classes"])
    learner.tasks_, learner.time_ = content["tasks"], content["time"]
    learner.lr_, learner.losses_ = content["lr"], content["losses"]
    return learner


def _described(value: Any, catalogue: Mapping[str, type[Any]]) -> dict[str, Any] | None:
    """A model or detector as its name and settings; those that are not ours are named only."""
    if value is None:
        return None
    for name, kind in catalogue.items():
        if type(value) is kind:
            settings = {field.name: getattr(value, field.name) for field in fields(value)}
            nested = {key: _described(part, catalogue) for key, part in settings.items() if isinstance(part, Model)}
            return {"name": name, "settings": settings | nested, "nested": sorted(nested)}
    return {"name": None, "what": type(value).__name__}


def _built(described: Mapping[str, Any] | None, catalogue: Mapping[str, type[Any]], folder: Path) -> Any:
    if described is None:
        return None
    if described["name"] is None:
        raise InputError(
            f"the learner has a part of your own ({described['what']}), which its file cannot hold",
            file=folder,
            fix="give it: LifelongLearner.load(folder, model=…)",
        )
    nested = {key: _built(described["settings"][key], catalogue, folder) for key in described["nested"]}
    return catalogue[described["name"]](**(described["settings"] | nested))


def _sealed(content: Mapping[str, Any]) -> bytes:
    """The content as JSON with a hash of it, so that a change is noticed."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "content": text}).encode()


def _unsealed(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        sealed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            "this folder holds no learner", file=folder, fix="give the folder of a saved learner"
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error
    try:
        text = sealed["content"]
        content = json.loads(text)
        known = content.get("format") == FORMAT
        version = content["format_version"] if known else 0
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(path, "this is not the file of an Evergraph learner") from error
    if not known:
        raise _damaged(path, "this is not the file of an Evergraph learner")
    if version > FORMAT_VERSION:
        raise DamagedLearnerError(
            f"the learner has format version {version}, newer than {FORMAT_VERSION}, the newest known here",
            file=path,
            fix="update Evergraph",
        )
    if hashlib.sha256(text.encode()).hexdigest() != sealed.get("sha256"):
        raise _damaged(path, "the contents are not those that were saved")
    return content


def _read_weights(folder: Path, entry: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    if not re.fullmatch(r"weights-[0-9a-f]{12}\.safetensors", entry["file"]):
        raise _damaged(folder / MANIFEST, f"{entry['file']!r} is no name of a weights file")
    path = folder / entry["file"]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _damaged(path, f"the weights cannot be read ({error.strerror or error})") from error
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(path, "the weights are not those that were saved")
    try:
        return tensors_from(data)
    except SafetensorError as error:
        raise _damaged(path, f"these are no weights ({error})") from error


def _damaged(path: Path, problem: str) -> DamagedLearnerError:
    return DamagedLearnerError(problem, file=path, fix="restore the folder from a backup, or train anew")
