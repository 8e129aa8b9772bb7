"""Schemes: one module per way to run a study, the only place that knows its protocols."""
