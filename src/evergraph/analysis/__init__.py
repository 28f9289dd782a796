"""How a graph moves in time: time differences and history sizes, drift, profiles, figures."""

from evergraph.analysis.drift import Drift, drift
from evergraph.analysis.profile import Profile, first_task, profile
from evergraph.analysis.tdiff import TimeDifferences, tdiff

__all__ = ["Drift", "Profile", "TimeDifferences", "drift", "first_task", "profile", "tdiff"]
