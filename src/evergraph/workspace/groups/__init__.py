"""Candidate groups of flagged vertices: new classes come in groups, and are easier to judge in groups."""

from evergraph.workspace.groups.find import Group, find_groups

__all__ = ["Group", "find_groups"]
