"""Tasks: what one party does in one run, one module per family of protocols."""
