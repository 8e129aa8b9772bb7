"""The sum of vectors in which a person who is at several sites counts at one of them. See SPEC.md."""
