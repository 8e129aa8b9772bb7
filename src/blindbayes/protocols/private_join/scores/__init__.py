"""`joined_scores`: classes of everybody a party knows, with the others' columns where they are shared. See SPEC.md."""
