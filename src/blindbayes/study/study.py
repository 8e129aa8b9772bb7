"""A study: who may learn what from whose data.

`Study(...)` makes a `RowStudy`, a `ColumnStudy` or a `JoinStudy`, and refuses what does not apply to it. It holds what the
parties agree on; who they are stands in a study file (`study.file`). `simulate` runs it with every party in this process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.contribution_bound import ContributionBound, require_identifier, require_rows_per_person
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.dp.noise.randomised_response import LARGEST, RandomisedLabels
from blindbayes.dp.release.release_plan import require_small_delta
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study import schemes
from blindbayes.study.fields import Model, Privacy, Thresholds
from blindbayes.study.schemes import Partition, Scheme
from blindbayes.study.summing import FEWEST_EXACT, SumPlanning
from blindbayes.wire.transcript import Keep

SIMULATION = "blindbayes.simulation.driver"


class Study(SumPlanning):
    """What the parties agreed on.

    Parameters
    ----------
    codebook : Codebook
    partition : "rows" or "columns"
        Whether the parties hold different records or different columns of the same records.
    protocol : str or typed options, default=None
        For rows "masked_sum" (default), or "reference", which protects nothing;
        or "private_ratio", which sums nothing in the open: a model in shares of two parties; or
        "scalar_product", Vaidya's own protocols, for comparison.
    epsilon, delta : float
        Differential privacy of the opened sum, by noise that the parties add together. None: the exact sum is opened.
        Over columns in shares: of all answers that the model ever gives, by noise of every party in the shares.
    label_epsilon : float or False, default=None
        Over columns in shares: the class holder randomises its labels once, so that the odds between two classes of a person
        move by at most e^label_epsilon whatever the other parties' software sends, in all trainings and answers together.
        By default twice epsilon, up to 12; without epsilon, or with False, labels are counted as they are.
    unit : "record" or "party"
        Whom epsilon protects: one record, or all records of a party (then `party_rows` is the largest party's size).
    rows_per_person : int, default=None
        With epsilon, over rows: each party counts at most so many rows of a person, by the codebook's identifier, drawn at
        random, and noise protects such a person within a party.
    tuning : str, default=None
        With epsilon: how settings were chosen, for the statement, which says that it was declared and not checked.
    expected_rows : int, default=None
        With epsilon: the declared number of rows of all parties together, a public figure or a guess. It decides how fine
        the released tables are, and steadies the estimates.
    gamma : float, default=2/3
        The fraction of parties assumed honest; noise is calibrated to the fewest honest parties that any sum the protocol can
        be made to open may hold.
    quorum : int, default=None
        The fewest contributors whose sum may be opened. By default two thirds (nine tenths of more than 64) for masked_sum,
        everybody for the others.
    min_parties : int, default=None
        Refuse a run with fewer parties. By default 3, or 2 with epsilon.
    min_rows : int, default=0
        Refuse a run in which a party holds fewer rows.
    min_cell : int, default=0
        With epsilon: noisy counts below it are published as 0. Exact sums are never altered. Over columns in shares, with or
        without epsilon: counters below it are set to 0 inside the circuit.
    options : mapping
        Options of the protocol, as its SPEC lists them; or give `protocol` a typed object that holds them.
    alpha, var_smoothing : float
        As in `NaiveBayes`.
    class_weight : mapping, default=None
        How much more an error in one class costs than in another, by label; classes that are not named weigh 1. The parties
        agree on it. It multiplies the priors, in an opened model and in classification over columns alike: a threshold of t for
        one of two classes is a weight of (1 - t) / t for it.
    reveal_to, key, aligned, duplicates
        For columns.
    privacy, thresholds, model
        The same settings grouped as in a study file: a `Privacy`, a `Thresholds`, a `Model`, each in place of its own.
    """

    kind: ClassVar[Partition]
    kind_described: ClassVar[str]
    usual: ClassVar[str]
    lined_up: ClassVar[bool]
    _ignored: ClassVar[Mapping[str, Any]] = {}  # settings that do not apply, and what they must be left at

    def __new__(
        cls, codebook: Codebook, *, partition: Partition = "rows", protocol: Any = None, aligned: bool = True, **_: Any
    ) -> Study:
        """The kind of study that these settings describe."""
        if cls is not Study:
            return object.__new__(cls)
        if partition not in ("rows", "columns"):
            raise ConfigError("partition is 'rows' or 'columns'")
        if partition == "rows":
            return object.__new__(RowStudy)
        name = None if protocol is None else schemes.named(protocol)[0]
        return object.__new__(ColumnStudy if (aligned if name is None else schemes.scheme(name).facts.aligned) else JoinStudy)

    def __init__(
        self,
        codebook: Codebook,
        *,
        partition: Partition | None = None,
        protocol: str | msgspec.Struct | None = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        label_epsilon: float | bool | None = None,
        unit: Literal["record", "party"] = "record",
        party_rows: int | None = None,
        rows_per_person: int | None = None,
        tuning: str | None = None,
        expected_rows: int | None = None,
        gamma: float = 2 / 3,
        quorum: int | None = None,
        min_parties: int | None = None,
        min_rows: int = 0,
        min_cell: int = 0,
        options: Mapping[str, Any] | None = None,
        alpha: float = 1.0,
        var_smoothing: float = 1e-9,
        class_weight: Mapping[str, float] | None = None,
        reveal_to: str = "all",
        key: str | Sequence[str] | None = None,
        aligned: bool | None = None,
        duplicates: str = "join",
        privacy: Privacy | None = None,
        thresholds: Thresholds | None = None,
        model: Model | None = None,
    ) -> None:
        parts = _apart(locals(), (privacy, thresholds, model))
        if parts is not None:  # the same settings, each by its name
            type(self).__init__(self, codebook, **parts)
            return
        name, given = (self.usual, None) if protocol is None else schemes.named(protocol)
        if given is not None and options:
            raise ConfigError("give the options of the protocol once: in `options`, or in the object for `protocol`")
        self.codebook = codebook
        self.partition: Partition = self.kind
        self.protocol = name
        self.epsilon = epsilon
        self.delta = delta
        self.label_epsilon = label_epsilon
        self.unit: Literal["record", "party"] = unit
        self.rows_per_person = rows_per_person
        self.tuning = tuning
        self.party_rows = party_rows
        self.expected_rows = expected_rows
        self.gamma = gamma
        self.quorum = quorum
        self.min_parties = (FEWEST_EXACT if epsilon is None else 2) if min_parties is None else min_parties
        self.min_rows = min_rows
        self.min_cell = min_cell
        self.options = dict(options or {}) if given is None else schemes.options_set(given)
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.class_weight = dict(class_weight or {})
        self.reveal_to = reveal_to
        self.key = key
        self.aligned = self.lined_up if aligned is None else aligned
        self.duplicates = duplicates
        self._plans = {}
        if partition not in (None, self.kind):
            raise ConfigError(f"{type(self).__name__} is over {self.kind}; leave partition out")
        self._require()
        self._agreed: str | None = None  # the hash of the study file that this is part of
        self._made = True

    def __getnewargs__(self) -> tuple[Codebook]:
        return (self.codebook,)

    def __repr__(self) -> str:
        """The class column and the settings that are not the default."""
        usual: dict[str, Any] = {name: each.default for name, each in signature(Study.__init__).parameters.items()}
        usual |= {"partition": self.kind, "protocol": self.usual, "aligned": self.lined_up, "options": {}, "class_weight": {}}
        usual["min_parties"] = FEWEST_EXACT if self.epsilon is None else 2
        settings = [f"{name}={mine!r}" for name in _FIELDS if (mine := getattr(self, name)) != usual[name]]
        return f"{type(self).__name__}({', '.join([f'<codebook of {self.codebook.target!r}>', *settings])})"

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_made", False) and name in _FIELDS:
            raise AttributeError("a study does not change; `replace` makes another one")
        object.__setattr__(self, name, value)

    def _require(self) -> None:
        """Refuse what is nonsense, and what does not apply, now: whoever signs must know what a setting does."""
        if not isinstance(self.codebook, Codebook):
            raise ConfigError("codebook must be a Codebook; read one with Codebook.from_toml")
        scheme, facts = self.scheme, self.scheme.facts
        if self.kind not in facts.partitions:
            known = schemes.known(self.kind)
            raise ConfigError(f"there is no {self.kind} protocol {self.protocol!r}; known: {', '.join(known)}")
        if self.kind == "columns" and (self.lined_up != facts.aligned or self.aligned != self.lined_up):
            raise ConfigError(
                f"{self.protocol} is for rows that {'line up' if facts.aligned else 'are matched by an identifier'}; "
                "change aligned or protocol"
            )
        if not facts.texts:
            self.codebook.require_one_value(f"a study over {self.kind_described} by {self.protocol}")
        if self.epsilon is not None and not (_is_number(self.epsilon) and self.epsilon > 0):
            raise PrivacyError("epsilon must be a positive number, or None for an exact sum")
        if self.epsilon is not None:
            budget_floor(self.epsilon)
        if self.label_epsilon is not None and self.label_epsilon is not False:
            if self.label_epsilon is True or not _is_number(self.label_epsilon):
                raise PrivacyError("label_epsilon must be a positive number, or false for labels that are counted as they are")
            if self.kind != "columns" or not facts.randomises:
                raise ConfigError("label_epsilon is for models in shares over columns; leave it out")
            RandomisedLabels.make(self.label_epsilon, len(self.codebook.classes))
        if not _is_number(self.delta):
            raise PrivacyError("delta lies between 0 and 1")
        require_small_delta(self.codebook, self.delta, self.expected_rows)
        if self.epsilon is not None and self.codebook.provenance == "inferred":
            raise PrivacyError("this codebook was inferred from training data, which leaks it; declare one for a private study")
        if self.unit not in ("record", "party"):
            raise PrivacyError("unit is 'record' or 'party': whom epsilon protects")
        if self.rows_per_person is not None:
            if self.epsilon is None or self.kind != "rows" or self.unit == "party":
                raise ConfigError(f"rows_per_person does not apply: {self._why_no_persons()}; leave it out")
            require_rows_per_person(self.rows_per_person)
            require_identifier(self.codebook)
        if self.tuning is not None and not (isinstance(self.tuning, str) and len(self.tuning) <= 2000):
            raise ConfigError("tuning is a text of at most 2,000 characters")
        if not _is_number(self.gamma) or not 0 < self.gamma <= 1:
            raise PrivacyError("gamma, the fraction of parties assumed honest, lies above 0 and is at most 1")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(f"{name} is a whole number, at least {least}")
        if not _is_number(self.alpha) or self.alpha <= 0 or not _is_number(self.var_smoothing) or self.var_smoothing < 0:
            raise ConfigError("alpha is a positive number, var_smoothing one that is not negative")
        if unknown := sorted(set(self.class_weight) - set(self.codebook.classes)):
            raise ConfigError(f"class_weight: {unknown[0]!r} is not a class of the codebook")
        if not all(_is_number(weight) and 1e-6 <= weight <= 1e6 for weight in self.class_weight.values()):
            raise ConfigError("class_weight: a weight lies between a millionth and a million")
        if self.class_weight and not facts.weighs:
            raise ConfigError(f"class_weight does not apply to {self.protocol}; leave it out")
        if self.duplicates not in ("join", "first", "reject"):
            raise ConfigError("duplicates are 'join', 'first' or 'reject'")
        for name, usual in self._ignored.items():
            if getattr(self, name) != usual:
                raise ConfigError(f"{name} does not apply to a study over {self.kind_described}; leave it out")
        if self.min_cell and not (facts.small_cells and (facts.shares or self.epsilon is not None)):
            raise ConfigError(
                "min_cell hides small counts of noisy sums over rows, and of models in shares: an exact sum with altered cells "
                "is neither exact nor private; set epsilon, or min_cell = 0"
            )
        if self.epsilon is None:
            for name, usual in _OF_NOISE.items():
                if getattr(self, name) != usual:
                    raise PrivacyError(
                        f"{name} is about noise, and without epsilon there is none; set epsilon, or leave it out"
                    )
        if self.party_rows is not None and self.unit != "party":
            raise PrivacyError("party_rows is for unit = 'party'; leave it out")
        self.params  # noqa: B018 - an option that the protocol does not know
        scheme.check(self)

    @property
    def weights(self) -> tuple[float, ...]:
        """The classes' weights in the codebook's order; none where all weigh alike."""
        found = tuple(float(self.class_weight.get(label, 1.0)) for label in self.codebook.classes)
        return () if len(set(found)) == 1 else found

    def _why_no_persons(self) -> str:
        if self.epsilon is None:
            return "without epsilon there is no noise that would protect a person"
        if self.kind == "rows":
            return "unit = 'party' protects all rows of a party already"
        if self.lined_up:
            return "row i of every party is one entity, and rows left out at one party would have to be at all"
        return "where rows are matched, a record is an identifier with all its rows: epsilon protects that person already"

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def scheme(self) -> Scheme:
        """How it is run, and all that anybody may ask about that."""
        return schemes.scheme(self.protocol).variant(self)

    @cached_property
    def params(self) -> msgspec.Struct:
        """The protocol's options, typed."""
        return schemes.params_of(schemes.scheme(self.protocol).params, self.options)

    @property
    def label_budget(self) -> float | None:
        """The epsilon of randomised labels; None: labels are counted as they are. By default twice epsilon, since exchanging a
        class is two steps of what epsilon protects, unless that is beyond what randomising can protect."""
        if self.label_epsilon is False or not (self.kind == "columns" and self.scheme.facts.randomises):
            return None
        if self.label_epsilon is not None:
            return float(self.label_epsilon)
        planned = None if self.epsilon is None else 2 * float(self.epsilon)
        return None if planned is None or planned > LARGEST else planned

    @property
    def is_private(self) -> bool:
        """Whether noise is added to what is counted: then no row may be an error."""
        return self.epsilon is not None

    @property
    def privacy(self) -> Privacy:
        """What the result promises."""
        return _grouped(Privacy, self)

    @property
    def thresholds(self) -> Thresholds:
        """Below which nothing is opened."""
        return _grouped(Thresholds, self)

    @property
    def model(self) -> Model:
        """How statistics become a model."""
        return _grouped(Model, self)

    def contribution_bound(self, coins: Coins) -> ContributionBound | None:
        """How many rows of a person count, drawn by a party's own coins; None: all of them."""
        return None if self.rows_per_person is None else ContributionBound(self.rows_per_person, coins.bytes(32))

    def to_dict(self) -> dict[str, Any]:
        """Everything agreed on, as plain builtins; the codebook by its hash."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        return {"format": "blindbayes.study/1", "codebook": self.codebook.sha256, **fields}

    @property
    def sha256(self) -> str:
        """Identifies the study; every key and signature of a run is bound to it. With its parties it is the file's."""
        if self._agreed is not None:
            return self._agreed
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def replace(self, **changes: Any) -> Study:
        """Another study, checked anew. A change of protocol or alignment may make it of another kind."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        if "protocol" in changes or "aligned" in changes:
            fields.pop("aligned")
        return Study(self.codebook, **{**fields, **changes})

    def agreed_as(self, sha256: str) -> Study:
        """The same study as part of a file with that hash."""
        found = self.replace()
        found._agreed = sha256
        return found

    def simulate(
        self,
        sources: Mapping[str, Any],
        *,
        base: Any = None,
        removed: Mapping[str, Any] | None = None,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        policies: Mapping[str, Any] | None = None,
        coins: Coins | None = None,
        faults: Sequence[Any] = (),
        keep: Keep = Keep.HEADERS,
        agreement: Any = None,
    ) -> Any:
        """Run the study in this process. `sources` maps each party to its frame, path, URL, source or `Statistics`.

        With `base`, an earlier result, the sources hold only new rows (and `removed` rows to take back), and the new
        statistics are added to the earlier ones. `ledgers` maps parties to their ledger files, which are charged before
        anything is sent; `policies` to what their sites allow (`site.policy.Policy`; by default whatever the study says).
        Returns a `Result` with the model, or a `JointResult` with its shares.
        """
        if not isinstance(sources, Mapping):
            raise ConfigError("sources maps the name of each party to its table")
        return import_module(SIMULATION).simulate(
            self,
            sources,
            base=base,
            removed=removed,
            ledgers=ledgers or {},
            policies=policies or {},
            coins=Coins.system() if coins is None else coins,
            faults=faults,
            keep=keep,
            agreement=agreement,
        )


class RowStudy(Study):
    """The parties hold different records of the same columns."""

    kind: ClassVar[Partition] = "rows"
    kind_described = "rows"
    usual: ClassVar[str] = "masked_sum"
    lined_up: ClassVar[bool] = True
    _ignored: ClassVar[Mapping[str, Any]] = {"reveal_to": "all", "key": None, "aligned": True, "duplicates": "join"}


class ColumnStudy(Study):
    """The parties hold different columns of the same records, in the same order."""

    kind: ClassVar[Partition] = "columns"
    kind_described = "columns whose rows line up"
    usual: ClassVar[str] = "class_sums"
    lined_up: ClassVar[bool] = True
    _ignored: ClassVar[Mapping[str, Any]] = {"quorum": None, "duplicates": "join"}


class JoinStudy(Study):
    """The parties hold different columns; rows are matched by an identifier, and nobody learns which match."""

    kind: ClassVar[Partition] = "columns"
    kind_described = "columns whose rows are matched by an identifier"
    usual: ClassVar[str] = "joined_sums"
    lined_up: ClassVar[bool] = False
    _ignored: ClassVar[Mapping[str, Any]] = {"quorum": None}


_FIELDS = tuple(name for name, each in signature(Study.__init__).parameters.items() if each.kind is Parameter.KEYWORD_ONLY)
_FIELDS = tuple(name for name in _FIELDS if name not in ("privacy", "thresholds", "model"))  # which group others
_LEAST = {"min_parties": 2, "min_rows": 0, "min_cell": 0, "quorum": 1, "expected_rows": 1, "party_rows": 1}
_OF_NOISE: dict[str, Any] = {
    each.name: each.default
    for each in msgspec.structs.fields(Privacy)
    if each.name not in ("epsilon", "label_epsilon", "rows_per_person")
}


P = TypeVar("P", bound=msgspec.Struct)


def _grouped(kind: type[P], study: Study) -> P:
    return kind(**{each.name: getattr(study, each.name) for each in msgspec.structs.fields(kind)})


def _apart(given: Mapping[str, Any], groups: Sequence[msgspec.Struct | None]) -> dict[str, Any] | None:
    """The settings of a call, groups taken apart; None if it has no groups."""
    usual = {name: each.default for name, each in signature(Study.__init__).parameters.items()}
    flat = {name: value for name, value in given.items() if name in _FIELDS and value is not usual[name]}
    found: dict[str, Any] = {}
    for group in groups:
        if group is not None:
            found |= msgspec.structs.asdict(group)
    if twice := sorted(set(found) & set(flat)):
        raise ConfigError(f"{twice[0]} is given twice: by its name, and in a group")
    return flat | found if any(group is not None for group in groups) else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
