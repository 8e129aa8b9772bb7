"""Rules on what may leave a site: limits, history, budgets, and the ordered checks before every run."""
