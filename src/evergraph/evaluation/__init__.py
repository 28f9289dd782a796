"""Evaluation: runs, comparisons, grids of trials, their results and metrics."""
