"""Training over columns: a model that exists only in shares."""
