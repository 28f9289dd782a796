"""Speed of Evergraph, as ratios measured in one run: ``make bench`` runs all and writes RESULTS.md."""

import evergraph as evergraph  # first, because it sets OMP_WAIT_POLICY, which has an effect only before torch is loaded
