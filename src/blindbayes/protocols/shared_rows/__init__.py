"""`private_ratio`: from the parties' counts to a model in shares of two of them. See SPEC.md."""
