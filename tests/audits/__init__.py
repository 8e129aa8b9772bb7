"""Audits of our own mechanisms: samplers, plans, stages, noise in shares and sums. `python tests/audits` runs all of them."""
