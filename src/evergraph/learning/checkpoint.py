"""A learner on disk: weights as safetensors, everything else as JSON.

::

    FOLDER/
      learner.json                      settings, classes, words, and size and hash of the weights
      weights-0123456789ab.safetensors  never changed after it was written

Saving writes the weights under a new name and then replaces ``learner.json`` by an atomic rename. If the process is
killed, the folder contains either the previous learner or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
import torch
from safetensors.torch import load as tensors_from
from safetensors.torch import save as tensors_to

from evergraph.detect import Detector, Softmax
from evergraph.errors import DamagedLearnerError, EvergraphError, InputError, StorageError, os_error
from evergraph.graph.evolving import TextMode
from evergraph.graph.ids import as_ids
from evergraph.inputs.vocabulary import BLOCKS, Vocabulary
from evergraph.learning.backtest import BlockGain
from evergraph.learning.memory import Kept, MemoryPolicy
from evergraph.learning.parameters import Counted
from evergraph.learning.regularise import Regulariser
from evergraph.learning.stacking import Stacking
from evergraph.names import described, inputs_of_version_0_1, rebuilt
from evergraph.nn import Draw, Model
from evergraph.nn.base import Parameters
from evergraph.storage.checksummed import dump_json, load_json
from evergraph.storage.decoding import InvalidContentError, InvalidJsonError, converted, decoding
from evergraph.storage.files import locked, sync_folder, write_synced

if TYPE_CHECKING:
    from evergraph.learning.learner import LifelongLearner

__all__ = ["load", "pack", "restore", "save", "unpack", "unpack_vocabulary", "untrained"]

FORMAT = "evergraph learner"
FORMAT_VERSION = 1
MANIFEST = "learner.json"

# Settings that JSON stores as they are.
_PLAIN = ("restart", "steps", "lr", "weight_decay", "inputs", "text", "seed", "kernels", "retire_after")
_WEIGHTS = r"^weights-[0-9a-f]{12}\.safetensors$"


@dataclass(frozen=True)
class _Vocabulary:
    blocks: list[str]
    dense: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    runs: list[tuple[str, list[str]]]
    text: TextMode
    unread: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [(block, name) for block, run in self.runs for name in run]
        if len(set(names)) < len(names) or not {block for block, _ in names} <= set(self.blocks) <= set(BLOCKS):
            raise ValueError("the columns are not different names of its blocks")
        if len(set(self.blocks)) < len(self.blocks) or not set(self.unread) < set(self.blocks):
            raise ValueError("the blocks are not different ones, of which some are read")


@dataclass(frozen=True)
class _OldVocabulary:
    """Of version 0.1, in which a learner reads either words or dense features."""

    names: list[str] | None
    width: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    text: TextMode

    def __post_init__(self) -> None:
        if self.names is not None and not len(set(self.names)) == len(self.names) == self.width:
            raise ValueError("the names are not as many different words as the width")


@dataclass(frozen=True)
class _Kept:
    ids: list[int | str]
    since: int | None

    def __post_init__(self) -> None:
        if len({type(value) for value in self.ids}) > 1 or len(set(self.ids)) < len(self.ids):
            raise ValueError("the kept vertices are not different ids of one kind")


@dataclass(frozen=True)
class _Packed:
    """The types of what `pack` returns, except for what the learner itself checks."""

    settings: dict[str, Any]
    classes: list[str]
    vocabulary: dict[str, Any]
    tasks: Annotated[int, msgspec.Meta(ge=1)]
    time: int | None
    lr: float | None
    losses: list[float]
    model: dict[str, Any] | str | None
    detector: dict[str, Any] | str | None
    regulariser: dict[str, Any] | str | None = None
    auxiliary_lr: float | None = None
    second_lr: float | None = None  # of version 0.1
    block_gains: dict[Literal["classes", "encoder"], tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(0 <= right <= of and 0 <= without <= of for of, right, without in self.block_gains.values()):
            raise ValueError("the gain of a block counts more vertices than there are, or fewer than 0")

    unused_from: int | None = None
    memory: dict[str, Any] | str | None = None
    kept: _Kept = field(default_factory=lambda: _Kept([], None))


@dataclass(frozen=True)
class _Weights:
    file: Annotated[str, msgspec.Meta(pattern=_WEIGHTS)]
    sha256: str


_Learner = TypeVar("_Learner", bound="LifelongLearner")


def pack(learner: LifelongLearner) -> tuple[dict[str, Any], bytes]:
    """Return a learner's settings and what it has learnt as a dict for JSON, and its tensors as safetensors."""
    if learner.weights_ is None or learner.vocabulary_ is None:
        raise EvergraphError("the learner is not trained yet, so there is nothing to save")
    tensors = {f"weights/{name}": value for name, value in learner.weights_.items()}
    tensors |= {f"auxiliary/{name}": value for name, value in (learner.auxiliary_weights_ or {}).items()}
    tensors |= {f"detector/{name}": value for name, value in learner.detector_.state.items()}
    tensors |= {f"regulariser/{name}": value for name, value in learner._regularised.items()}
    stacking = {} if learner.stacking_ is None else learner.stacking_.tensors()
    tensors |= {f"stacking/{name}": value for name, value in stacking.items()}
    if learner._counted is not None:
        tensors |= {f"counted/{name}": torch.from_numpy(value) for name, value in vars(learner._counted).items()}
    vocabulary = learner.vocabulary_
    content = {
        "settings": {name: described(getattr(learner, name)) for name in _PLAIN} | {"device": str(learner.device)},
        "model": described(learner.model),
        "detector": described(learner.detector_.detector),
        "regulariser": described(learner.regulariser),
        "classes": list(learner.classes_),
        "vocabulary": asdict(vocabulary),
        "block_gains": learner.block_gains_,
        "unused_from": learner._unused,
        "tasks": learner.tasks_,
        "time": learner.time_,
        "lr": learner.lr_,
        "auxiliary_lr": learner.auxiliary_lr_,
        "losses": learner.losses_,
        "memory": described(learner.memory),
        "kept": {"ids": learner.kept_.ids.tolist(), "since": learner.kept_.since},
    }
    return content, tensors_to({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def unpack_vocabulary(content: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of a learner that was packed, also by version 0.1."""
    if "names" in content["vocabulary"]:
        old = converted(content["vocabulary"], _OldVocabulary)
        if old.names is None:
            return Vocabulary(("numbers",), old.width, (), old.text)
        return Vocabulary(("words",), 0, (("words", tuple(old.names)),) if old.names else (), old.text)
    found = converted(content["vocabulary"], _Vocabulary)
    runs = tuple((block, tuple(names)) for block, names in found.runs)
    classes = [name for block, names in runs if block == "classes" for name in names]
    if classes != [str(number) for number in range(min(len(classes), len(content["classes"])))]:
        raise InvalidContentError("the columns of the classes are not those of the classes")
    return Vocabulary(tuple(found.blocks), found.dense, runs, found.text, tuple(found.unread))


def unpack(
    kind: type[_Learner],
    content: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    model: Model | torch.nn.Module | None = None,
    detector: Detector | None = None,
    device: str | torch.device | None = None,
    regulariser: Regulariser | None = None,
    memory: MemoryPolicy | None = None,
) -> _Learner:
    """Return the learner that was packed. Use it within `decoding`: what was edited can fail anywhere."""
    learner = untrained(kind, content, model, detector, device, regulariser, memory)
    restore(learner, content, tensors)
    return learner


def untrained(
    kind: type[_Learner],
    content: Mapping[str, Any],
    model: Model | torch.nn.Module | None = None,
    detector: Detector | None = None,
    device: str | torch.device | None = None,
    regulariser: Regulariser | None = None,
    memory: MemoryPolicy | None = None,
) -> _Learner:
    """Return a new learner with the settings of one that was packed."""
    converted(content, _Packed)
    settings = {"inputs": inputs_of_version_0_1(content["vocabulary"]), **content["settings"]}
    return kind(
        model if model is not None else rebuilt(content["model"], "model"),
        detector or rebuilt(content["detector"], "detector") or Softmax(),  # version 0.1 wrote null for `Softmax`
        memory=memory or rebuilt(content.get("memory"), "memory"),
        **{**settings, **({} if device is None else {"device": device})},
        regulariser=regulariser or rebuilt(content.get("regulariser"), "regulariser"),
    )


def restore(learner: LifelongLearner, content: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Let a new learner continue from what `pack` returned; refuse weights of another model."""

    def part(prefix: str) -> Parameters:
        return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

    vocabulary, classes = unpack_vocabulary(content), tuple(content["classes"])
    weights = part("weights/")
    # Version 0.1 wrote "second" for "auxiliary".
    auxiliary = part("auxiliary/") or part("second/") or None
    auxiliary_lr = content.get("auxiliary_lr", content.get("second_lr"))
    # A file that was edited can ask for any number of parameters.
    most = sum(value.numel() for value in weights.values())
    try:
        expected = _shapes(learner._model().parameters(vocabulary.width, len(classes), Draw(0, most=most)))
    except (ValueError, RuntimeError):
        expected = {}
    if any(_shapes(one) != expected for one in (weights, auxiliary) if one is not None):
        raise InputError(
            f"the saved weights are not those of {learner._model()!r}", fix="pass the model that was trained"
        )
    tasks, time, lr, losses = (content[name] for name in ("tasks", "time", "lr", "losses"))
    learner.weights_, learner.auxiliary_weights_, learner._state = weights, auxiliary, part("detector/")
    learner._regularised = part("regulariser/")
    learner._loaded = True
    learner._move()
    learner.classes_, learner.vocabulary_ = classes, vocabulary
    learner.block_gains_ = {name: BlockGain(*gain) for name, gain in content.get("block_gains", {}).items()}
    learner.stacking_ = Stacking.from_tensors(part("stacking/"), len(classes))
    learner.tasks_, learner.time_, learner.losses_ = tasks, time, losses
    learner._unused = content.get("unused_from")
    kept = content.get("kept", {"ids": [], "since": None})
    learner.kept_ = Kept(as_ids(kept["ids"]), kept["since"])
    learner._counted = _counted(part("counted/"))
    learner.lr_, learner.auxiliary_lr_ = lr, auxiliary_lr
    own, learner._default_rates = learner._detector(), {}
    for detector, rate in ((own, lr), (own.requires.auxiliary, auxiliary_lr)):
        if detector is not None and rate is not None and learner.lr is None:
            learner._default_rates[type(detector)] = rate


def _counted(tensors: Mapping[str, torch.Tensor]) -> Counted | None:
    if not tensors:
        return None
    shapes = {(name, value.dtype, value.dim(), len(value)) for name, value in tensors.items() if value.dim()}
    size = len(next(iter(tensors.values()))) if shapes else -1
    if shapes != {(name, torch.int64, 1, size) for name in ("codes", "columns")}:
        raise InvalidContentError("the counted vertices are not two lists of as many whole numbers")
    return Counted(**{name: value.cpu().numpy() for name, value in tensors.items()})


def _shapes(weights: Parameters) -> dict[str, tuple[Any, ...]]:
    return {name: (value.dtype, *value.shape) for name, value in weights.items()}


def save(learner: LifelongLearner, folder: Path) -> None:
    """Save a learner into a folder."""
    packed, data = pack(learner)
    digest = hashlib.sha256(data).hexdigest()
    name = f"weights-{digest[:12]}.safetensors"
    weights = {"file": name, "bytes": len(data), "sha256": digest}
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **packed, "weights": weights}
    if folder.exists() and not folder.is_dir():
        raise InputError("this is a file, not a folder", file=folder, fix="choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "learner"):
            _write(folder, name, data, dump_json(content))
    except OSError as error:
        if isinstance(error, EvergraphError):
            raise
        raise os_error(error, "the learner could not be saved", file=folder, note="The folder is unchanged") from error


def _write(folder: Path, name: str, weights: bytes, manifest: bytes) -> None:
    staged = [folder / f"{name}.new", folder / f"{MANIFEST}.new"]
    there = (folder / name).exists()
    try:
        # Staged even if there is a file of this name: unchanged weights are those of the current learner.
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
        raise StorageError(
            f"the learner is saved, but the disk did not confirm it ({error.strerror or error})",
            file=folder,
            fix="save it again",
        ) from error
    with contextlib.suppress(OSError):  # left-over files are removed by the next save
        for other in folder.glob("weights-*.safetensors*"):
            if other.name != name:
                other.unlink()


def load(
    kind: type[_Learner],
    folder: Path,
    model: Model | torch.nn.Module | None,
    detector: Detector | None,
    device: str | torch.device | None,
    regulariser: Regulariser | None = None,
    memory: MemoryPolicy | None = None,
) -> _Learner:
    """Load the learner in a folder."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            "this folder contains no learner", file=folder, fix="choose the folder of a saved learner"
        ) from None
    except OSError as error:
        raise os_error(error, "it cannot be read", damaged=partial(_damaged, path)) from error
    try:
        with decoding(path, _damaged):
            content = load_json(data, FORMAT, FORMAT_VERSION)
            weights = converted(content["weights"], _Weights)
    except InvalidJsonError as error:  # newer
        raise DamagedLearnerError(str(error), file=path, fix="update Evergraph") from error
    tensors = _read_weights(folder / weights.file, weights.sha256)
    with decoding(path, _damaged):
        return unpack(kind, content, tensors, model, detector, device, regulariser, memory)


def _read_weights(path: Path, sha256: str) -> dict[str, torch.Tensor]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise os_error(error, "the weights cannot be read", damaged=partial(_damaged, path)) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise _damaged(path, "the weights are not those that were saved")
    with decoding(path, _damaged):
        return tensors_from(data)


def _damaged(path: Path, problem: str) -> DamagedLearnerError:
    return DamagedLearnerError(problem, file=path, fix="restore the folder from a backup, or train again")
