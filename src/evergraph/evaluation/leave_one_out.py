"""Leave-one-family-out: judge detectors that learn from many graphs on graphs of families that they have not seen.

For each family of graphs, a detector is fitted to the recorded trainings of all other families (`Detector.fitted_on`)
and then replayed on the graphs of the family. Whatever a detector chooses, a threshold for example, it chooses inside
`fitted_on`, so it is chosen without the family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from torch import Tensor

from evergraph.detect import Detector, Outputs
from evergraph.detect.base import UNKNOWN, UNLABELLED
from evergraph.errors import InputError
from evergraph.evaluation.compared import CompareState, OnCompared
from evergraph.evaluation.comparison import (
    Candidate,
    Comparison,
    compare,
    recorded_job,
    results_of,
    store_results,
)
from evergraph.evaluation.configuration import Configuration
from evergraph.evaluation.replay import Recording, record
from evergraph.evaluation.workers import RayEngine, graph_of, name_of, threads_each
from evergraph.graph.classes import columns_among
from evergraph.graph.evolving import EvolvingGraph
from evergraph.inputs.slice_context import SliceContext

__all__ = ["RecordedSlices", "leave_one_out", "recorded_slices"]


@dataclass(frozen=True, eq=False)
class RecordedSlices:
    """The slices of a recorded training, as `evergraph.detect.base.PastGraph` describes them."""

    name: str
    family: str
    graph: EvolvingGraph
    recording: Recording

    def slices(self) -> Iterator[tuple[Outputs, Tensor, bool]]:
        """Yield the outputs for each slice, its targets, and whether it was a task (or only replayed before it)."""
        import torch

        seen: set[int] = set()
        tasks = {event.time for event in self.recording.events if event.kind == "decide"}
        for event in self.recording.events:
            if event.kind == "fit" or event.time is None or event.time in seen:
                continue
            seen.add(event.time)
            task = self.recording.task(self.graph, event.time)
            codes = task.window.codes[task.test]
            columns = columns_among(event.classes, self.graph.class_names)[codes]
            targets = np.where(codes < 0, UNLABELLED, np.where(columns < 0, UNKNOWN, columns))
            tensors = self.recording.read(event)
            context = SliceContext(task, event.classes)
            outputs = Outputs(tensors["logits"], tensors.get("hidden"), context, stacked_logits=tensors.get("stacked"))
            yield outputs, torch.from_numpy(targets), event.time in tasks


def recorded_slices(
    graphs: Sequence[str], families: Mapping[str, str], configuration: Configuration, seed: int, out: Path
) -> list[RecordedSlices]:
    """Return the recorded slices of each graph; trainings that are not recorded yet are recorded in ``out``."""
    found = []
    for path in graphs:
        name, (graph, _) = name_of(path), graph_of(path)
        job = recorded_job(path, configuration, seed, out)
        with threads_each(1):
            recording = record(job.configuration, graph, seed, job.folder)
        found.append(RecordedSlices(name, families.get(name, name), graph, recording))
    return found


def leave_one_out(
    graphs: Sequence[str],
    candidates: Sequence[Candidate],
    configuration: Configuration,
    families: Mapping[str, str],
    seeds: Sequence[int] = (0,),
    *,
    out: str | Path,
    jobs: int = 1,
    engine: RayEngine | None = None,
    on_done: OnCompared | None = None,
) -> Comparison:
    """Compare detectors as `compare` does, but fit those that learn from other graphs without the graph's family.

    Parameters
    ----------
    graphs, candidates, configuration, seeds, out, jobs, engine, on_done
        As in `compare`.
    families
        Family of each graph by its name; a graph that is not listed is a family of its own.
    """
    fitted = [one for one in candidates if one.detector.requires.graphs]
    own = {name_of(path): families.get(name_of(path), name_of(path)) for path in graphs}
    if unknown := sorted(families.keys() - own.keys()):
        raise InputError(f"there is no graph {unknown[0]!r} for its family", fix=f"name one of {', '.join(own)}")
    if fitted and len(set(own.values())) < 3:
        raise InputError(
            f"the graphs are of {len(set(own.values()))} families, and a detector is fitted without one of them",
            fix="compare graphs of at least three families",
        )
    plain = [one for one in candidates if not one.detector.requires.graphs]
    # Candidates that flag nothing record the training that the fitted ones need.
    needed = plain or [Candidate("none", type(fitted[0].trained_with)(), fitted[0].trained_with)]
    compared = compare(graphs, needed, configuration, seeds, out=out, jobs=jobs, engine=engine, on_done=on_done)
    outcomes = [one for one in compared.outcomes if one.detector in {each.name for each in plain}]
    report = on_done or (lambda _: None)
    by_loss: dict[Detector, list[Candidate]] = {}
    for one in fitted:
        by_loss.setdefault(one.trained_with, []).append(one)
    for seed, loss in product(compared.seeds, by_loss) if not compared.errors else ():
        trained = replace(configuration, detector=loss)
        known = recorded_slices(graphs, families, trained, seed, Path(out))
        for family in dict.fromkeys(own.values()):
            report(CompareState(len(own), len(own), (), f"fitting without the family {family}, seed {seed}"))
            others = [graph for graph in known if graph.family != family]
            learnt = tuple(replace(one, detector=one.detector.fitted_on(others)) for one in by_loss[loss])
            for path in (path for path in graphs if own[name_of(path)] == family):
                found = results_of(replace(recorded_job(path, trained, seed, Path(out)), candidates=learnt))
                store_results(Path(out), found)
                outcomes += found
    return replace(compared, candidates=tuple(candidates), outcomes=tuple(outcomes), left_out=True)
