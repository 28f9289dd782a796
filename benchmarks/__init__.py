"""Speed of Evergraph, as ratios measured in one run: ``make bench`` runs all and writes RESULTS.md."""
