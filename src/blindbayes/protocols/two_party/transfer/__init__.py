"""`transfer`: two parties set up oblivious transfers, once; everything two-party rests on it. See SPEC.md."""
