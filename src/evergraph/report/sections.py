"""The parts of the page in their order: what each is called, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evergraph.report import parts
from evergraph.report.html import Safe

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Parameters
    ----------
    part
        The field of the story that it shows.
    name
        Its id in the page.
    word
        What the navigation calls it.
    heading, lead
        Its title, and how to read it.
    show
        What makes its body.
    of_workspace
        How to read it in the report of a workspace, where that is not the same.
    """

    part: str
    name: str
    word: str
    heading: str
    lead: str
    show: Callable[[Any], Safe]
    of_workspace: str | None = None

    def lead_for(self, kind: str) -> str:
        """How to read it in the report of a run or of a workspace."""
        return self.of_workspace if kind == "workspace" and self.of_workspace is not None else self.lead


SECTIONS = (
    Section(
        part="headlines",
        name="glance",
        word="At a glance",
        heading="At a glance",
        lead="Figures of all times together; ± is half the width of their 95 % interval.",
        show=parts.headlines_part,
    ),
    Section(
        part="slices",
        name="accuracy",
        word="Accuracy",
        heading="Accuracy over time",
        lead=(
            "How many new vertices got the right class at each time; the dashed line leaves out those whose class the"
            " learner could not know."
        ),
        show=parts.accuracy_part,
    ),
    Section(
        part="slices",
        name="unseen",
        word="Unseen classes",
        heading="Unseen classes over time",
        lead=(
            "How many vertices were held to be of a class never seen before, beside how many truly were; the closer "
            "the lines, the better."
        ),
        show=parts.unseen_part,
        of_workspace=(
            "How many of all decided vertices were held to be of a class never seen before, beside how many of those "
            "whose label has come truly were. These are not the same vertices as long as labels are missing, and what"
            " was reviewed gets its label first."
        ),
    ),
    Section(
        part="slices",
        name="numbers",
        word="All times",
        heading="All times in numbers",
        lead="One row for each time; shares are of the vertices whose label is known by now.",
        show=parts.numbers_part,
        of_workspace=(
            "One row for each time; shares are of the vertices whose label is known by now, but “held to be unseen” is"
            " of all that were decided."
        ),
    ),
    Section(
        part="transfer",
        name="transfer",
        word="Forward transfer",
        heading="Forward transfer",
        lead="What the learner gains by keeping its weights from time to time, against starting afresh.",
        show=parts.transfer_part,
    ),
    Section(
        part="drift",
        name="drift",
        word="Drift",
        heading="Drift of the classes",
        lead=(
            "How far the mix of classes moves: 0 is no change, 1 is no class in common. High drift makes old labels "
            "worth less."
        ),
        show=parts.drift_part,
    ),
    Section(
        part="timeline",
        name="classes",
        word="Classes",
        heading="Birth, growth and death of classes",
        lead=(
            "One row for each of the largest classes, the oldest at the top: a row begins where the class is born, is"
            " strongest where it is largest, and ends where it dies out."
        ),
        show=parts.timeline_part,
    ),
    Section(
        part="confusion",
        name="confusion",
        word="Confusion",
        heading="Confusion of the largest classes",
        lead=(
            "Rows are the true classes, columns what they were taken for, under the same numbers (O: other classes, "
            "U: unseen); a strong diagonal is good."
        ),
        show=parts.confusion_part,
    ),
    Section(
        part="calibration",
        name="calibration",
        word="Calibration",
        heading="Calibration",
        lead=(
            "Of the vertices that get a probability of 80 %, 80 % should be right: then the line is on the dotted "
            "one. Below it the learner is too sure of itself."
        ),
        show=parts.calibration_part,
    ),
    Section(
        part="threshold",
        name="threshold",
        word="Threshold",
        heading="What another threshold would have done",
        lead=(
            "A strict threshold finds more unseen vertices and gives more false alarms; MCC weighs both against each "
            "other, and is best where it is highest."
        ),
        show=parts.threshold_part,
    ),
    Section(
        part="differences",
        name="history",
        word="History",
        heading="Time differences and history",
        lead=(
            "How far in time those vertices lie apart that a model of two layers can connect; a history that covers "
            "half of the pairs or more is usually enough."
        ),
        show=parts.differences_part,
    ),
    Section(
        part="review",
        name="review",
        word="To review",
        heading="Unseen vertices to review",
        lead=(
            "Vertices that no known class claims, the strangest first: look at them, and name their class if it is new."
        ),
        show=parts.review_part,
    ),
    Section(
        part="details",
        name="details",
        word="Details",
        heading="Details",
        lead="Everything that is needed to know, and to do again, what this page shows.",
        show=parts.details_part,
        of_workspace="Settings, models so far and the last commands.",
    ),
)
