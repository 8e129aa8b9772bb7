"""`private_ratio`: from the parties' counts to probabilities, opened without the counts, or a model in shares. See SPEC.md."""
