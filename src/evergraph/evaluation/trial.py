"""What a grid is made of: trials, each a configuration under one seed, which any process can run."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Protocol

from evergraph.evaluation.run import NUMERICS_VERSION

__all__ = ["Trial", "key_of"]


class Trial(Protocol):
    """Something to run once: a value that can be sent to another process.

    What comes of it may depend on nothing but its description and its seed.
    """

    @property
    def graph_name(self) -> str:
        """Name of its graph; results of one graph are kept together."""

    @property
    def seed(self) -> int:
        """All its randomness."""

    def described(self) -> dict[str, Any]:
        """All that makes it this one but the seed, fit for JSON."""

    def run(self) -> dict[str, Any]:
        """What comes of it, fit for JSON."""


def key_of(trial: Trial) -> str:
    """What a result is found by: a hash of the description, the seed and the version of the numbers."""
    identity = {"trial": trial.described(), "seed": trial.seed, "numerics_version": NUMERICS_VERSION}
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]
