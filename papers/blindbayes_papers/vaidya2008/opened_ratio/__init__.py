"""`opened_ratio`: from the parties' counts to probabilities, opened without the counts. See SPEC.md."""
