"""`joined_sums`: shares of class-conditional sums over identifiers that both parties have. See SPEC.md."""
