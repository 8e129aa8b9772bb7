"""The private fit of one table."""
