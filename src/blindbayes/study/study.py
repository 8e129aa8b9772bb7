"""Studies: what several parties agree to compute together.

`RowStudy`, `ColumnStudy` and `JoinStudy` are frozen data, checked when they are made (`study.checks`). Who the parties are
stands in a study file (`study.file`). `simulate` runs a study with every party in this process.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.dp.noise.randomised_response import LARGEST
from blindbayes.errors import ConfigError
from blindbayes.protocols.memory import Fault, Keep
from blindbayes.study.checks import require_study
from blindbayes.study.fields import Estimation, Limits, Privacy
from blindbayes.study.tasks import registry
from blindbayes.study.tasks.traits import Partition, Support

if TYPE_CHECKING:
    from blindbayes.disclosure.policy import Policy
    from blindbayes.naive_bayes.base import BaseNaiveBayes
    from blindbayes.study.tasks.evaluation import CrossValidationResult, EvaluationResult
    from blindbayes.study.tasks.result import JointResult, Result
    from blindbayes.study.tasks.task import StudyTask

SIMULATION = "blindbayes.study.simulation.driver"
Duplicates = Literal["join", "first", "reject"]


class _CodebookFirst(msgspec.Struct, frozen=True):
    """Makes the codebook the one positional parameter of every study."""

    codebook: Codebook


class Study(_CodebookFirst, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, tag_field="kind"):
    """Base of all kinds of study; make a `RowStudy`, a `ColumnStudy` or a `JoinStudy`."""

    protocol: str
    options: dict[str, Any] = {}
    privacy: Privacy = Privacy()
    limits: Limits = Limits()
    estimation: Estimation = Estimation()

    partition: ClassVar[Partition]
    aligned: ClassVar[bool] = True  # whether row i of every party is the same entity
    described: ClassVar[str]

    def __post_init__(self) -> None:
        require_study(self)

    def __repr__(self) -> str:
        settings = [f"{name}={getattr(self, name)!r}" for name in without_defaults(self) if name != "codebook"]
        return f"{type(self).__name__}({', '.join([f'<codebook of {self.codebook.target!r}>', *settings])})"

    @property
    def task_class(self) -> type[StudyTask]:
        """The class of the study's task, which knows how it is run."""
        return registry.task_class(self.protocol).variant(self)

    @cached_property
    def params(self) -> msgspec.Struct:
        """The protocol's options, typed."""
        return registry.parse_params(registry.task_class(self.protocol).params, self.options)

    @property
    def weights(self) -> tuple[float, ...]:
        """The classes' weights in the codebook's order; empty if all are equal."""
        weights = tuple(self.estimation.class_weight.get(label, 1.0) for label in self.codebook.classes)
        return () if len(set(weights)) == 1 else weights

    @property
    def label_budget(self) -> float | None:
        """The epsilon of randomised labels; None if labels are counted as they are.

        By default it is twice epsilon, since exchanging a class is two steps of what epsilon protects, unless that is more
        than randomised response supports.
        """
        given, epsilon = self.privacy.label_epsilon, self.privacy.epsilon
        if given is False or Support.LABEL_EPSILON not in self.task_class.supports:
            return None
        if given is not None:
            return float(given)
        return None if epsilon is None or 2 * epsilon > LARGEST else 2 * epsilon

    @property
    def is_private(self) -> bool:
        """True if what is opened is noisy. Then no row may raise an error."""
        return self.privacy.epsilon is not None

    def contribution_bound(self, coins: Coins) -> ContributionBound | None:
        """Return the bound on rows per person, with a key from a party's own coins; None if all rows count."""
        rows = self.privacy.rows_per_person
        return None if rows is None else ContributionBound(rows, coins.bytes(32))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that are not at their default, as plain builtins; the codebook by its hash."""
        fields = {name: value for name, value in without_defaults(self).items() if name != "codebook"}
        return {"kind": type(self).__struct_config__.tag, "codebook": self.codebook.sha256, "protocol": self.protocol, **fields}

    @cached_property
    def sha256(self) -> str:
        """The hash of the study alone. A study file, which adds the parties, has a hash of its own."""
        return hashlib.sha256(canonical(self.to_dict())).hexdigest()

    def replace(self, **changes: Any) -> Self:
        """Return another study of this kind, checked anew."""
        return msgspec.structs.replace(self, **changes)

    def simulate(
        self,
        sources: Mapping[str, Any],
        *,
        base: Result | None = None,
        removed: Mapping[str, Any] | None = None,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        policies: Mapping[str, Policy] | None = None,
        coins: Coins | None = None,
        faults: Sequence[Fault] = (),
        keep: Keep = Keep.HEADERS,
    ) -> Result | JointResult:
        """Run the study in this process.

        Parameters
        ----------
        sources : mapping
            Each party's frame, path, URL, source or `Statistics`.
        base : Result, optional
            An earlier result. Then the sources hold only new rows (and `removed` rows to take back), and the new statistics
            are added to the earlier ones.
        removed : mapping, optional
            Rows that parties take back from `base`.
        ledgers : mapping, optional
            Each party's ledger file, which is charged before anything is sent.
        policies : mapping, optional
            What each party's site allows (`disclosure.policy.Policy`); by default everything the study asks for.
        coins : Coins, optional
            Source of randomness; by default the system's.
        faults : sequence, optional
            Parties that vanish (`testing.Vanish`) or misbehave.
        keep : Keep
            How much of the transcript is stored.

        Returns
        -------
        Result or JointResult
            The model, or its shares.
        """
        simulation = import_module(SIMULATION).Simulation(self, sources, ledgers, policies, coins, keep)
        result: Result | JointResult = simulation.train(base, removed, faults)
        return result


class RowStudy(Study, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rows"):
    """A study whose parties hold different records of the same columns.

    Parameters
    ----------
    codebook : Codebook
    protocol : str, default="masked_sum"
        "masked_sum" opens the sum of the parties' statistics; "private_ratio" opens nothing and leaves a model in shares of
        two parties, or of as many as its option `computing` says. The papers' distribution adds others.
    options : mapping
        Options of the protocol, as its page lists them.
    privacy : Privacy
    limits : Limits
    estimation : Estimation
    """

    protocol: str = "masked_sum"

    partition: ClassVar[Partition] = "rows"
    described: ClassVar[str] = "rows"

    def evaluate(
        self,
        model: Result | BaseNaiveBayes | str | os.PathLike[str],
        sources: Mapping[str, Any],
        *,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        policies: Mapping[str, Policy] | None = None,
        coins: Coins | None = None,
        keep: Keep = Keep.HEADERS,
    ) -> EvaluationResult:
        """Evaluate a model on the held-out rows of all parties, in this process, by one more sum of the study's protocol.

        Parameters
        ----------
        model : Result, estimator or path
            The result of `simulate`, a fitted model of the same target, classes and features, or a model file.
        sources : mapping
            Each party's whole table, as in `simulate`. Only the part that `Estimation(held_out=...)` holds out is evaluated.
        ledgers, policies, coins, keep
            As in `simulate`.

        Returns
        -------
        EvaluationResult
            `figures`, `table`, `plot`, the model `recalibrated`, and who learned what. All figures are those of the pooled
            held-out rows, or with an epsilon these with noise and intervals, and charged like the training.
        """
        if model is None:
            raise ConfigError("evaluate needs a model; `cross_validate` compares candidates without one")
        simulation = import_module(SIMULATION).Simulation(self, sources, ledgers, policies, coins, keep)
        result: EvaluationResult = simulation.evaluate(model)
        return result

    def cross_validate(
        self,
        sources: Mapping[str, Any],
        *,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        policies: Mapping[str, Policy] | None = None,
        coins: Coins | None = None,
        keep: Keep = Keep.HEADERS,
    ) -> CrossValidationResult:
        """Compare the study's candidates (`Estimation(folds=..., candidates=...)`) by cross-validation, in this process.

        Two sums in one run: the statistics of every fold, then the evaluations of all candidates on the folds that did not
        train them. With an epsilon each is released with half of it. Arguments as in `evaluate`.

        Returns
        -------
        CrossValidationResult
            `evaluations` (one per candidate), `best` and `table`. Equal to cross-validation on the pooled folds.
        """
        simulation = import_module(SIMULATION).Simulation(self, sources, ledgers, policies, coins, keep)
        result: CrossValidationResult = simulation.evaluate(None)
        return result


class ColumnStudy(Study, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="columns"):
    """A study whose parties hold different columns of the same records, in the same order.

    Parameters
    ----------
    codebook : Codebook
    protocol : str, default="class_sums"
        "class_sums" leaves a model in shares of the parties. The papers' distribution adds others.
    options : mapping
        Options of the protocol, as its page lists them.
    privacy : Privacy
    limits : Limits
    estimation : Estimation
    reveal_to : str, default="all"
        Who learns the class of a classified instance: all parties, or one.
    """

    protocol: str = "class_sums"
    reveal_to: str = "all"

    partition: ClassVar[Partition] = "columns"
    described: ClassVar[str] = "columns whose rows line up"


class JoinStudy(Study, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="join"):
    """A study whose parties hold different columns, and rows are matched by an identifier. Nobody learns which match.

    Parameters
    ----------
    codebook : Codebook
    key : str or sequence of str, default=()
        The identifier columns, if the codebook describes no identifier.
    duplicates : "join", "first" or "reject"
        Several rows of one identifier: count every pair, take the first, or stop the run.
    protocol : str, default="joined_sums"
        "joined_sums" leaves a model in shares of the parties. The papers' distribution adds others.
    options : mapping
        Options of the protocol, as its page lists them.
    privacy : Privacy
    limits : Limits
    estimation : Estimation
    reveal_to : str, default="all"
        Who learns the class of a classified instance: all parties, or one.
    """

    protocol: str = "joined_sums"
    reveal_to: str = "all"
    key: tuple[str, ...] = ()
    duplicates: Duplicates = "join"

    partition: ClassVar[Partition] = "columns"
    aligned: ClassVar[bool] = False
    described: ClassVar[str] = "columns whose rows are matched by an identifier"

    def __post_init__(self) -> None:
        columns = (self.key,) if isinstance(self.key, str) else tuple(self.key)
        msgspec.structs.force_setattr(self, "key", columns)
        super().__post_init__()


def join_study(study: Study) -> JoinStudy:
    """Return the study as one over a hidden join. Raises `ConfigError` for another kind."""
    if not isinstance(study, JoinStudy):
        raise ConfigError(f"a study over {study.described} has no identifiers to match")
    return study


def learner_of(study: Study) -> str:
    """Return who learns the class of a classified instance: "all", or one party."""
    return study.reveal_to if isinstance(study, ColumnStudy | JoinStudy) else "all"


KINDS: dict[str, type[RowStudy | ColumnStudy | JoinStudy]] = {"rows": RowStudy, "columns": ColumnStudy, "join": JoinStudy}
_fields = cache(msgspec.structs.fields)


def without_defaults(value: Any) -> Any:
    """Return plain builtins of a struct without the fields that are at their default.

    A field that a later version adds leaves the hash of an agreed study as it is.
    """
    if not isinstance(value, msgspec.Struct):
        return [without_defaults(item) for item in value] if isinstance(value, tuple) else msgspec.to_builtins(value)
    fields = {}
    for field in _fields(type(value)):
        item = getattr(value, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if default is msgspec.NODEFAULT or item != default:
            fields[field.name] = without_defaults(item)
    return fields


def canonical(fields: Mapping[str, Any]) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, finite numbers."""
    try:
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise ConfigError("the numbers of a study are finite") from None
