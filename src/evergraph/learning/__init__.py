"""Tasks, and the learner that is kept current on them."""
