"""The disclosure of a run, stated by its task before any row is read.

Policy, approval page, dry run, leak report and statement are made from this one value. The module imports nothing of `study`,
so that every package can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SumForm(Enum):
    """The form in which a sum over the rows of several sites becomes known."""

    EXACT = "exact"  # opened without noise
    NOISY = "noisy"  # opened with noise that the sites add together
    SHARED = "shared"  # stays in shares, but enough answers of the model reveal it


class Leaving(Enum):
    """The form in which this site's data leave it."""

    HIDDEN = "hidden"  # sums under masks or encryption that no other party alone can take off
    PIECES = "pieces"  # sums as shares, of which one alone is independent of them
    ENCRYPTED = "encrypted"  # columns under pads or circuits
    READABLE = "readable"  # sums that another party reads
    UNSTATED = "unstated"  # the messages say it


@dataclass(frozen=True, slots=True)
class Withstood:
    """The collusion that a sum over rows withstands."""

    others: int  # contributors that may collude with the reader of the sum
    contributors: int
    deviating: bool  # also if they deviate from the protocol
    trusted: str = ""  # a role that must not be among them
    honest_fraction: float = 1.0  # of the parties, whose noise a site relies on; 0: on its own alone


@dataclass(frozen=True, slots=True)
class RowSum:
    """A sum over the rows of at least `quorum_size` sites."""

    form: SumForm
    quorum_size: int
    min_cell: int = 0  # smaller cells of an exact sum are suppressed before anything is opened


@dataclass(frozen=True, slots=True)
class Answers:
    """Classifications by a model that stays in shares; each opens one class."""

    queries: int | None  # instances that may be classified, ever; None: not limited
    to: tuple[str, ...]  # parties that learn the class; empty: the party whose instance it is
    audit_rate: float = 0.0  # share of dummies among the look-ups
    min_cell: int | None = None  # counters below it are set to 0 inside the circuit; None: the protocol has no such floor


@dataclass(frozen=True, slots=True)
class Overlap:
    """The part of a join by identifiers that shows whom the parties share."""

    min_overlap: int  # one bit per pair of parties: whether at least this many identifiers match; 0: no bit is opened
    epsilon: float = 0.0  # privacy cost of a noisy count of the matches; 0: no count is opened
    matches_to: tuple[str, ...] = ()  # parties that learn which of their identifiers match


@dataclass(frozen=True, slots=True)
class Output:
    """One output that the run opens."""

    name: str  # its label in the leak report, or its description
    to: tuple[str, ...]  # parties that learn it; empty: as the description says


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """The outputs of a run: to whom, under which assumptions, at what privacy cost, and what a deviating party gets."""

    protocol: str
    summary: str  # who learns what, in one line
    messages: tuple[str, ...]  # the form in which data leaves a site, one line each
    outputs: tuple[Output, ...] = ()
    learners: tuple[str, ...] = ()  # parties that learn the result of the run, or the class of an instance
    row_sum: RowSum | None = None  # None: no sum over rows of several sites is opened or can be inferred
    answers: Answers | None = None  # None: no classification follows
    overlap: Overlap | None = None  # None: no identifiers are joined
    site_figures: str = "none"  # what an evaluation opens about single sites: none, spread or each
    epsilon: float = 0.0  # the largest privacy cost to any site; 0: no noise
    delta: float = 0.0
    assumptions: tuple[str, ...] = ()  # what the promise rests on, one sentence each
    deviation: tuple[str, ...] = ()  # what a party that deviates from the protocol gets
    conclusions: tuple[str, ...] = ()  # what can be concluded from what is opened, for the leak report
    risks: tuple[str, ...] = ()  # settings that deserve a second look, for the person who approves
    leaving: Leaving = Leaving.UNSTATED
    withstands: Withstood | None = None  # None: no sum over rows is opened, or nothing is stated
    matcher: str = ""  # a party without rows that compares keyed pseudonyms of persons and learns how many are where
    holders: tuple[str, ...] = ()  # parties that hold the shares of a sum over rows; all together can read it
    unit: str = "record"  # what epsilon protects: "record", "person" or "party"
    unsafe: tuple[str, ...] = ()  # reasons why an option protects nothing; a site refuses such a study

    @property
    def opened(self) -> tuple[str, ...]:
        """The names of the outputs; or "nothing"."""
        return tuple(output.name for output in self.outputs) or ("nothing",)
