"""What stays in training beyond the window: labelled vertices that are older, chosen by a policy within a budget."""

from evergraph.learning.memory.base import Candidates, Kept, MemoryPolicy, as_memory, quotas, remember
from evergraph.learning.memory.class_mean import ClassMean
from evergraph.learning.memory.coverage import Coverage
from evergraph.learning.memory.degree import Degree
from evergraph.learning.memory.pagerank import PageRank
from evergraph.learning.memory.random import Random
from evergraph.learning.memory.recent_per_class import RecentPerClass
from evergraph.learning.memory.recent_typical import RecentTypical

__all__ = [
    "Candidates",
    "ClassMean",
    "Coverage",
    "Degree",
    "Kept",
    "MemoryPolicy",
    "PageRank",
    "Random",
    "RecentPerClass",
    "RecentTypical",
    "as_memory",
    "quotas",
    "remember",
]
