"""``python -m evergraph`` is the command ``evergraph``."""

from evergraph.cli import main

main()
