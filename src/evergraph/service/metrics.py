"""Figures for Prometheus."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evergraph.service.jobs import Jobs
from evergraph.service.reads import Reads

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counts requests, and reads the other figures from the workspace when they are asked for."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        known: Any = {"registry": self._registry}
        self._requests = Counter("evergraph_requests", "Requests.", ("method", "route", "status"), **known)
        self._seconds = Histogram("evergraph_request_seconds", "Seconds until the answer.", buckets=_SECONDS, **known)
        self._labels = Counter("evergraph_labels", "Labels that arrived over HTTP.", **known)
        self._jobs = Gauge("evergraph_jobs", "Jobs by state, of the last 1,000.", ("kind", "state"), **known)
        names = {
            "version": "Current version.",
            "vertices": "Vertices of the graph.",
            "decisions": "Vertices with a decision.",
            "flagged_share": "Share of the newest decided slice that is flagged.",
            "accuracy": "Accuracy on the newest slice with labels.",
            "drift": "Drift of the newest slice with labels.",
            "update_seconds": "Training time of the current model.",
            "waiting_review": "Flagged vertices without a label.",
            "waiting_labels": "Labels that the model was not trained on.",
        }
        self._gauges = {name: Gauge(f"evergraph_{name}", text, **known) for name, text in names.items()}

    def answered(self, method: str, route: str, status: int, start: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).inc()
        if not route.endswith("/events"):  # which lasts as long as its job
            self._seconds.observe(time.perf_counter() - start)

    def wrote(self, answer: dict[str, Any]) -> None:
        """Count what a write did."""
        if isinstance(labels := answer.get("labels"), int) and answer.get("command") in ("label", "classes create"):
            self._labels.inc(labels)

    def text(self, reads: Reads, jobs: Jobs) -> bytes:
        """Return all figures in the text format of Prometheus."""
        status, scores = reads.status(), reads.scores()["scores"]
        model = reads.models()["models"][-1]
        labelled = [row for row in scores if row["labelled"]]
        found = {
            "version": status["version"],
            "vertices": status["vertices"],
            "decisions": sum(row["decided"] for row in scores),
            "flagged_share": scores[-1]["flagged"] if scores else None,
            "accuracy": labelled[-1]["accuracy"] if labelled else None,
            "drift": labelled[-1]["drift"] if labelled else None,
            "update_seconds": model["seconds"],
            "waiting_review": status["to_review"],
            "waiting_labels": status["fresh_labels"],
        }
        for name, value in found.items():
            self._gauges[name].set(float("nan") if value is None else value)
        self._jobs.clear()
        for job in jobs.list(1000):
            self._jobs.labels(job["kind"], job["state"]).inc()
        return generate_latest(self._registry)
