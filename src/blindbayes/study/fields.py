"""Groups of settings that a study is made of. Each is checked when it is made."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from blindbayes.data.split import MAX_FRACTION
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics.evaluation import require_bins
from blindbayes.statistics.site_figures import DETAILS, SiteDetail

MAX_NOTE_LENGTH = 2000
MAX_RUN_SECONDS = 30 * 86400
_INDEPENDENT_OF_EPSILON = ("epsilon", "label_epsilon", "rows_per_person")

MAX_FOLDS = 20
MAX_CANDIDATES = 20


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, repr_omit_defaults=True):
    """Differential privacy of what a run opens. Without `epsilon` nothing is noisy.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss of one run over rows, by noise that the parties add together. Over columns in shares: of all answers that
        the model ever gives, by noise of every party in the shares. None: what is opened is exact.
    allow_large_delta : bool, default=False
        Agree to a delta above a tenth of one over `expected_rows`.
    label_epsilon : float or False, default=None
        Over columns in shares: the class holder randomises its labels once, so that the odds between two classes of a person
        move by at most e^label_epsilon whatever the other parties' software sends, in all trainings and answers together.
        By default twice epsilon, up to 12; without epsilon, or with False, labels are counted as they are.
    unit : "record" or "party"
        What epsilon protects: one record, or all records of a party (then `party_rows` is the size of the largest party).
    party_rows : int, default=None
        The number of rows of the largest party, for unit="party".
    rows_per_person : int, default=None
        Over rows: each party counts at most this number of rows of a person, chosen at random by the codebook's identifier,
        and epsilon protects them together.
    sites_per_person : int or "matched", default=None
        With `rows_per_person`: the largest number of parties that a person has rows at. Epsilon then protects a person's rows
        at all of them together, by that much more noise. Declared, not checked; the number of parties always holds. "matched":
        a party without rows compares keyed pseudonyms, and each person counts at one of their parties, which nobody learns;
        the noise is that for one party. None: a person is one person at each party, and pays epsilon at each.
    tuning_note : str, default=None
        How settings were chosen. The statement quotes it and says that it was not checked.
    expected_rows : int, default=None
        The number of rows of all parties together, as publicly known or guessed. It decides how fine the released tables are.
    honest_fraction : float, default=2/3
        The fraction of parties assumed honest. Noise is calibrated to the smallest number of honest parties in any sum that
        the protocol can be made to open.
    """

    epsilon: float | None = None
    delta: float = 0.0
    allow_large_delta: bool = False
    label_epsilon: float | bool | None = None
    unit: Literal["record", "party"] = "record"
    party_rows: int | None = None
    rows_per_person: int | None = None
    sites_per_person: int | Literal["matched"] | None = None
    tuning_note: str | None = None
    expected_rows: int | None = None
    honest_fraction: float = 2 / 3

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            if not (is_number(self.epsilon) and self.epsilon > 0):
                raise PrivacyError("epsilon must be a positive number, or None for an exact sum")
            budget_floor(self.epsilon)
        if self.label_epsilon is True or not (self.label_epsilon in (None, False) or is_number(self.label_epsilon)):
            raise PrivacyError("label_epsilon must be a positive number, or false for labels that are counted as they are")
        if not is_number(self.delta) or not 0 <= self.delta < 1:
            raise PrivacyError("delta lies between 0 and 1")
        if type(self.allow_large_delta) is not bool:
            raise ConfigError("allow_large_delta is true or false")
        if self.unit not in ("record", "party"):
            raise PrivacyError("unit is 'record' or 'party': what epsilon protects")
        if self.tuning_note is not None and not (
            isinstance(self.tuning_note, str) and len(self.tuning_note) <= MAX_NOTE_LENGTH
        ):
            raise ConfigError(f"tuning_note is a text of at most {MAX_NOTE_LENGTH:,} characters")
        if not is_number(self.honest_fraction) or not 0 < self.honest_fraction <= 1:
            raise PrivacyError("honest_fraction, the fraction of parties assumed honest, lies above 0 and is at most 1")
        _require_whole(self, expected_rows=1, party_rows=1)
        if isinstance(self.sites_per_person, str) and self.sites_per_person != "matched":
            raise ConfigError('sites_per_person is a number of sites, or "matched"')
        if not self.is_matched:
            _require_whole(self, sites_per_person=1)
        if self.epsilon is None:
            self._require_nothing_about_noise()
        if self.party_rows is not None and self.unit != "party":
            raise PrivacyError("party_rows is for unit = 'party'; leave it out")
        if self.sites_per_person is not None and self.rows_per_person is None:
            raise ConfigError("sites_per_person goes with rows_per_person, the rows of a person at each of these sites")
        _store_floats(self, "epsilon", "delta", "honest_fraction")
        if not isinstance(self.label_epsilon, bool):
            _store_floats(self, "label_epsilon")

    @property
    def person_rows(self) -> int | None:
        """The number of rows of a person that epsilon protects together; None where it protects a record or a party."""
        if self.rows_per_person is None:
            return None
        sites = self.sites_per_person
        return self.rows_per_person * (sites if isinstance(sites, int) else 1)

    @property
    def is_matched(self) -> bool:
        """True if persons are matched over the parties, so that each counts at one of them."""
        return self.sites_per_person == "matched"

    def _require_nothing_about_noise(self) -> None:
        for field in msgspec.structs.fields(self):
            if field.name not in _INDEPENDENT_OF_EPSILON and getattr(self, field.name) != field.default:
                raise PrivacyError(
                    f"{field.name} is about noise, and does not apply without epsilon; set epsilon, or leave it out"
                )


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, repr_omit_defaults=True):
    """Minimum numbers below which nothing is opened.

    Parameters
    ----------
    min_parties : int, default=3
        Refuse a run over rows with fewer parties. Sums with noise may have two.
    min_rows : int, default=0
        Refuse a run in which a party has fewer rows.
    quorum : int, default=None
        Over rows: the minimum number of contributors in an opened sum. By default two thirds (nine tenths of more than 64)
        for masked_sum, everybody for other protocols.
    min_cell : int, default=0
        Exact sums over rows: cells of 1 to min_cell - 1 rows are suppressed before anything is opened (at least 3, or 0). With
        epsilon: noisy counts below it are published as 0. Over columns in shares, with or without epsilon: counters below it
        are set to 0 inside the circuit.
    """

    min_parties: int = 3
    min_rows: int = 0
    quorum: int | None = None
    min_cell: int = 0

    def __post_init__(self) -> None:
        _require_whole(self, min_parties=2, min_rows=0, min_cell=0, quorum=1)


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A candidate of a cross-validation: settings that differ from the study's.

    Parameters
    ----------
    alpha : float
        Smoothing; by default the study's.
    bins : int
        Number of bins of every numeric feature; by default as the codebook says.
    features : tuple of str
        The features of the model; by default all.
    """

    alpha: float | None = None
    bins: int | None = None
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.alpha is not None and (not is_number(self.alpha) or self.alpha <= 0):
            raise ConfigError("candidates: alpha must be a positive number")
        if self.bins is not None and (type(self.bins) is not int or self.bins < 2):
            raise ConfigError("candidates: bins is a whole number from 2 on")
        if self.alpha is not None:
            _store_floats(self, "alpha")

    @property
    def description(self) -> str:
        """The candidate in words."""
        parts = [f"alpha {self.alpha:g}"] if self.alpha is not None else []
        parts += [f"{self.bins} bins"] if self.bins is not None else []
        parts += [f"features {', '.join(self.features)}"] if self.features else []
        return "; ".join(parts) or "as agreed"


class Estimation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, repr_omit_defaults=True):
    """Estimation of the model from statistics, and its evaluation.

    Parameters
    ----------
    alpha, var_smoothing : float
        Smoothing, as in `NaiveBayes`.
    class_weight : mapping
        Cost of an error in a class, by label; classes that are not named weigh 1. Weights multiply the priors, in an opened
        model and in classification over columns alike: a threshold t for one of two classes is a weight of (1 - t) / t.
    held_out : float, default=0.0
        Over rows: the fraction of persons (of rows, without an identifier in the codebook) that no run trains on, for
        `RowStudy.evaluate`. Each party holds out its own, by a hash under a key of its own, the same in all runs.
    folds : int, default=0
        Over rows: the number of folds of a cross-validation (`RowStudy.cross_validate`), 2 to 20, of the rows for training.
    candidates : tuple of Candidate
        What a cross-validation compares; by default the study's own settings alone.
    score_bins : int, default=40
        The number of bins of a class's log-odds in an evaluation, an even number; their edges are public.
    site_figures : "none", "spread" or "each"
        What an evaluation opens about single parties, besides the sum: nothing, mean and standard deviation of their
        accuracies (of six parties or more), or each party's by its name. In whole percent, and only without epsilon.
    """

    alpha: float = 1.0
    var_smoothing: float = 1e-9
    class_weight: dict[str, float] = {}
    held_out: float = 0.0
    score_bins: int = 40
    folds: int = 0
    candidates: tuple[Candidate, ...] = ()
    site_figures: SiteDetail = "none"

    def __post_init__(self) -> None:
        if self.site_figures not in DETAILS:
            raise ConfigError("site_figures is 'none', 'spread' or 'each'")
        if self.site_figures != "none" and not self.held_out:
            raise ConfigError("site_figures is about an evaluation: set held_out, for example held_out = 0.2")
        if not is_number(self.held_out) or not 0 <= self.held_out <= MAX_FRACTION:
            raise ConfigError(f"held_out is a fraction from 0 (every row trains) to {MAX_FRACTION:g}")
        require_bins(self.score_bins)
        if type(self.folds) is not int or not (self.folds == 0 or 2 <= self.folds <= MAX_FOLDS):
            raise ConfigError(f"folds is 0 (no cross-validation) or a whole number from 2 to {MAX_FOLDS}")
        if len(self.candidates) > MAX_CANDIDATES:
            raise ConfigError(f"candidates: at most {MAX_CANDIDATES}, since each opens another table of scores")
        if self.candidates and not self.folds:
            raise ConfigError("candidates are compared by a cross-validation: set folds, for example folds = 5")
        if not is_number(self.alpha) or self.alpha <= 0 or not is_number(self.var_smoothing) or self.var_smoothing < 0:
            raise ConfigError("alpha must be a positive number and var_smoothing must not be negative")
        if not all(is_number(weight) and 1e-6 <= weight <= 1e6 for weight in self.class_weight.values()):
            raise ConfigError("class_weight: a weight lies between a millionth and a million")
        _store_floats(self, "alpha", "var_smoothing", "held_out")
        weights = {label: float(weight) for label, weight in self.class_weight.items()}
        msgspec.structs.force_setattr(self, "class_weight", weights)


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time limits in seconds: of silence within a step, until all parties have joined, of the whole run."""

    step: float = 60.0
    join: float = 600.0
    run: float = 3600.0

    def __post_init__(self) -> None:
        _store_floats(self, "step", "join", "run")
        if not 0 < self.step <= self.run <= MAX_RUN_SECONDS or not 0 < self.join <= self.run:
            raise ConfigError("deadlines: 0 < step, join <= run, in seconds, at most 30 days")


def is_number(value: Any) -> bool:
    """Return whether a value is a finite int or float (bool and NumPy scalars are not)."""
    return type(value) in (int, float) and math.isfinite(value)


def _require_whole(group: msgspec.Struct, **minimum: int) -> None:
    for name, lowest in minimum.items():
        value = getattr(group, name)
        if value is not None and (type(value) is not int or value < lowest):
            raise ConfigError(f"{name} is a whole number, at least {lowest}")


def _store_floats(group: msgspec.Struct, *names: str) -> None:
    """Store whole numbers as floats, so that 60 and 60.0 have one hash."""
    for name in names:
        value = getattr(group, name)
        if value is not None and repr(value) != repr(float(value) + 0.0):  # -0.0 becomes 0.0
            msgspec.structs.force_setattr(group, name, float(value) + 0.0)
