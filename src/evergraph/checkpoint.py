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
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensors_to

from evergraph.describe import described, rebuilt
from evergraph.detect import Detector
from evergraph.errors import DamagedLearnerError, EvergraphError, InputError
from evergraph.files import locked, sync_folder, write_synced
from evergraph.nn.base import Model
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
        "settings": {name: described(getattr(learner, name)) for name in _PLAIN} | {"device": str(learner.device)},
        "model": described(learner.model),
        "detector": described(learner.detector),
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "learner"):
            _write(folder, name, data, _sealed(content))
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        raise EvergraphError(
            f"{folder}: the learner could not be saved ({error.strerror or error}); what was there is unchanged."
        ) from error


def _write(folder: Path, name: str, weights: bytes, manifest: bytes) -> None:
    staged = [folder / f"{name}.new", folder / f"{MANIFEST}.new"]
    there = (folder / name).exists()
    try:
        # Staged even where a file of this name is there: it may be the one in force, if the weights have not changed.
        write_synced(staged[0], weights)
        staged[0].replace(folder / name)
        write_synced(staged[1], manifest)
        sync_folder(folder)
        staged[1].replace(folder / MANIFEST)  # the commit point
    except OSError:
        with contextlib.suppress(OSError):
            for path in staged if there else [*staged, folder / name]:
                path.unlink(missing_ok=True)
        raise
    try:
        sync_folder(folder)
    except OSError as error:
        raise EvergraphError(
            f"{folder}: the learner is saved, but the disk did not confirm it ({error.strerror or error}); "
            "save it again."
        ) from error
    with contextlib.suppress(OSError):  # the learner is saved; what is left over goes with the next save
        for other in folder.glob("weights-*.safetensors*"):
            if other.name != name:
                other.unlink()


def load(
    kind: type[_Learner],
    folder: Path,
    model: Model | torch.nn.Module | None,
    detector: Detector | None,
    device: str | torch.device | None,
) -> _Learner:
    """See `LifelongLearner.load`."""
    content = _unsealed(folder)
    try:
        settings = dict(content["settings"])
        if device is not None:
            settings["device"] = device
        learner = kind(
            model if model is not None else rebuilt(content["model"], "model"),
            detector if detector is not None else rebuilt(content["detector"], "detector"),
            **settings,
        )
        vocabulary = dict(content["vocabulary"])
        names = vocabulary.pop("names")
        tensors = _read_weights(folder, content["weights"])
        learner.restore(
            classes=tuple(content["classes"]),
            vocabulary=Vocabulary(None if names is None else tuple(names), **vocabulary),
            weights=_part(tensors, "weights/"),
            state=_part(tensors, "detector/"),
            tasks=content["tasks"],
            time=content["time"],
            lr=content["lr"],
            losses=content["losses"],
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise _damaged(folder / MANIFEST, f"it lacks or distorts {error}") from error
    return learner


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


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
        version = int(content["format_version"]) if known else 0
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
