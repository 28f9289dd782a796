"""Detectors and scores that serve comparison only; Evergraph finds them by entry point."""
