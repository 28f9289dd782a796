"""The production loop on disk: a folder with a graph, models, decisions and labels."""

from evergraph.workspace.change import Outcome
from evergraph.workspace.workspace import Workspace

__all__ = ["Outcome", "Workspace"]
