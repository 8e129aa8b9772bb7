"""Protocols: ways to turn the parties' integer vectors into a sum, a model or shares of one.

One folder per protocol, named for what it computes: `messages`, `roles`, `SPEC.md`. Roles are generators without I/O; see
`blindbayes.protocols.core` for the effects they yield.
"""
