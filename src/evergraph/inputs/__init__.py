"""What a model and a detector read of a vertex."""
