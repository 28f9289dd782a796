"""Tasks, and the learner that is updated task by task."""
