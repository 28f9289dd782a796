"""How good a learner is: runs, comparisons, their results and metrics."""
