"""Lifelong learning on evolving graphs."""

__version__ = "0.1.0"
