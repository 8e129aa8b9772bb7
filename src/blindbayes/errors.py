"""Exceptions of the package.

A message names the rule that was broken and, where a person can act, the next step. It never contains a value from a row, a
share, a key or a mask.
"""

from __future__ import annotations

from collections.abc import Sequence


class BlindbayesError(Exception):
    """Base of all exceptions of the package; `code` is the exit code of the command line."""

    code = 1


class ConfigError(BlindbayesError):
    """A codebook, study, site file or argument breaks a rule."""

    code = 2


class DataError(BlindbayesError, ValueError):
    """A data source does not fit the codebook. Names column and rule, never the value."""

    code = 3


class PrivacyError(BlindbayesError):
    """A release would break the privacy rules: no budget left, unbounded sensitivity, undeclared domain."""

    code = 4


class ProtocolError(BlindbayesError):
    """Base of failures between parties; `party` is the party at fault, if known.

    If no signature decides which of several parties is at fault, `party` is None and `suspects` lists them.
    """

    code = 5

    def __init__(self, message: str, *, party: str | None = None, suspects: Sequence[str] = ()) -> None:
        named = party or " or ".join(suspects)
        super().__init__(f"{named}: {message}" if named else message)
        self.party = party
        self.suspects = (party,) if party else tuple(suspects)


class LocalProtocolError(ProtocolError):
    """Our own bug or misuse: a role did what its protocol does not allow."""

    code = 5


class PeerProtocolError(ProtocolError):
    """Another party sent what its protocol does not allow."""

    code = 6


class IntegrityError(ProtocolError):
    """A cryptographic check failed. One message for all causes, so that it is no oracle."""

    code = 7
    text = "an integrity check failed"

    def __init__(self, *, party: str | None = None, suspects: Sequence[str] = ()) -> None:
        super().__init__(self.text, party=party, suspects=suspects)


class UndisclosedError(IntegrityError):
    """A failed check whose outcome depends on what only this site may learn: other sites are not informed."""

    text = (
        "a class cannot be read: another site sent an invalid message. No site is informed: informing one, or requesting the "
        "same batch again, would reveal something about a class"
    )


class PeerLost(ProtocolError):
    """A party closed, broke, or missed its deadline."""

    code = 8


class RunStopped(ProtocolError):
    """The run was stopped by a person, here or at `party`."""

    code = 10


class LedgerError(PrivacyError):
    """The ledger cannot be read, was tampered with, or cannot be written."""

    code = 9


_PUBLIC = frozenset(kind.code for kind in (PeerProtocolError, IntegrityError, PeerLost, RunStopped))


def public_code(code: int) -> int:
    """Return the code that peers receive: the kind if it concerns them, else one code for all local failures."""
    return code if code in _PUBLIC else BlindbayesError.code


def kind_of(code: int) -> str:
    """Return the name of the error class with this code: peers exchange codes only."""
    for kind in globals().values():
        if isinstance(kind, type) and issubclass(kind, BlindbayesError) and vars(kind).get("code") == code:
            return kind.__name__
    return "unknown error"
