"""The exception tree. A leaf: imports nothing of the package.

Two rules hold for every message raised here: it names the rule that was broken and, where a person can act, the next
step; and it never carries a value from a row, a share, a key or a mask.
"""

from __future__ import annotations

from collections.abc import Sequence


class BlindbayesError(Exception):
    """Base of everything the package raises on purpose. `code` is the process exit code of the command line."""

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
    """Base of what goes wrong between parties; `party` is whom it names, where it names one.

    Where a message came through another party's hands and no signature tells whose fault it is, `party` is None and
    `suspects` lists those of whom at least one is at fault.
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

    def __init__(self, *, party: str | None = None, suspects: Sequence[str] = (), evidence: bytes | None = None) -> None:
        super().__init__(self.text, party=party, suspects=suspects)
        self.evidence = evidence  # what the accused party signed, for others to look at; sites keep it


class UntoldError(IntegrityError):
    """A check failed whose outcome hangs on what this site alone may learn. It ends the run here, and no other site is told."""

    text = (
        "a class cannot be read: another site sent what it should not have. No site is told; to tell one, or to ask for the "
        "same batch again, would tell it something about a class"
    )


class PeerLost(ProtocolError):
    """A party closed, broke, or missed its deadline."""

    code = 8


class RunStopped(ProtocolError):
    """People stopped the run, at this site or at `party`'s."""

    code = 10


class LedgerError(PrivacyError):
    """The ledger cannot be read, was tampered with, or cannot be written."""

    code = 9


_TOLD = frozenset(kind.code for kind in (PeerProtocolError, IntegrityError, PeerLost, RunStopped))


def told_code(code: int) -> int:
    """What other sites hear of a failure: its kind where it concerns them; one code for a site's own table, rules, budget."""
    return code if code in _TOLD else BlindbayesError.code


def kind_of(code: int) -> str:
    """Return the name of the error class with this code: peers exchange codes only."""
    for kind in globals().values():
        if isinstance(kind, type) and issubclass(kind, BlindbayesError) and vars(kind).get("code") == code:
            return kind.__name__
    return "unknown error"
