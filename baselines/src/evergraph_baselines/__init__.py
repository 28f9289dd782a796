"""Detectors, scores and regularisers that serve comparison only; Evergraph finds them by entry point."""
