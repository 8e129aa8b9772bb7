"""A study over columns in one process: every party's role runs here, each message really encoded and decoded.

`simulate` trains; the result's `model` is a `JointModel`: two or more shares and nothing else. `predict` runs the joint
classification, in which only the class is opened. `combine` joins the shares in one place, to compare with pooled training;
it exists for simulation alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.estimators import NaiveBayes
from blindbayes.model.parameters import Parameters, estimate
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.softspoken import Keeper, Planter
from blindbayes.protocol import columns as roles
from blindbayes.protocol import shared_argmax, transfer
from blindbayes.protocol.columns import Columns, Trained
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.shared_argmax import Mesh
from blindbayes.report import About, LeakReport, leak_report, run_files, seal_files
from blindbayes.runtime.folder import write_folder
from blindbayes.runtime.memory import Outcome, local_runs, run_in_memory
from blindbayes.runtime.transcript import Cost
from blindbayes.statistics import Block, Layout, Statistics, count_block
from blindbayes.study.part import Steady
from blindbayes.study.study import Leak, Result, Study, report_of

if TYPE_CHECKING:
    from blindbayes.study.printed_columns import PrintedResult

_OPTIONS = ("queries", "together")
_BATCH = 1 << 14  # instances classified in one run: bounds memory; kinds of messages are the same in each


@dataclass(frozen=True)
class JointResult:
    """How a study over columns ended: with a model that nobody has."""

    model: JointModel = field(repr=False)
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]
    report: LeakReport | None = field(default=None, repr=False)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the release: the leak report, cost, statement, checksums; and beside them one share file per party.

        The checksums leave the shares out: each goes to its party alone. The folder must be new or empty.
        """
        report = self.report or report_of((), self.leakage)
        where = write_folder(folder, seal_files(run_files(report, self.cost, self.statement)))
        for name, share in self.model.shares.items():
            share.save(where / f"{name}.share")
        return where


@dataclass(frozen=True)
class Prediction:
    """One batch of joint classification."""

    labels: npt.NDArray[Any]
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)


class JointModel:
    """A model that exists only as shares, one per party."""

    def __init__(
        self, columns: Columns, shares: Mapping[str, ModelShare], reveal_to: str = "all", *, together: bool = False
    ) -> None:
        self.columns = columns
        self.shares = dict(shares)
        self.reveal_to = reveal_to
        self.together = together
        self._kept: dict[str, Any] = {}  # transfers of each party, set up once in a process
        columns.query(1, reveal_to)  # a wrong name is noticed here

    def __repr__(self) -> str:
        return f"JointModel({', '.join(self.shares)})"

    @classmethod
    def load(cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, together: bool = False) -> JointModel:
        """From the parties' share files, in one process: for simulation."""
        shares = {name: ModelShare.load(path) for name, path in files.items()}
        first = next(iter(shares.values()), None)
        if first is None or any(share.public != first.public or share.study != first.study for share in shares.values()):
            raise ConfigError("the share files are not of one study")
        if any(share.party != name for name, share in shares.items()):
            raise ConfigError("a share file belongs to another party")
        columns = columns_of(first.public)
        if set(columns.owners) != set(shares):
            raise ConfigError("every party of the study must bring its share file")
        return cls(columns, shares, reveal_to, together=together)

    @property
    def tie_bound(self) -> float:
        """The class equals that of pooled classification wherever its two best scores differ by more than this."""
        return self.columns.plan.tie_bound

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """Class labels, in the codebook's order."""
        return np.array(self.columns.codebook.classes, dtype=str)

    def predict(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> npt.NDArray[Any]:
        """The class of each instance, whose attributes the parties bring in the same order. Opens the class only."""
        return self.classify(frames, coins=coins).labels

    def classify(self, frames: Mapping[str, Any], *, coins: Coins | None = None) -> Prediction:
        """`predict`, with the leak report and the cost of the run."""
        coins = Coins.system() if coins is None else coins
        for share in self.shares.values():
            share.require_alive()
        parts = self._scorings(frames)
        count = next(iter(parts.values())).count
        for share in self.shares.values():  # each party for itself, before it sends anything
            share.charge(count)
        if not self._kept:
            made = {name: part.connect for name, part in parts.items()}
            self._kept = self._run(made, coins).outputs
        for name, part in parts.items():
            part.kept = self._kept[name]
        outcome = self._run({name: part.role for name, part in parts.items()}, coins)
        learned = [outcome.outputs[name] for name in self.columns.query(1, self.reveal_to).learners]
        if any(not np.array_equal(learned[0], other) for other in learned[1:]):
            raise LocalProtocolError("two parties learned different classes")
        return Prediction(self.classes_[learned[0]], leakage_of(outcome), outcome.cost)

    def _scorings(self, frames: Mapping[str, Any]) -> dict[str, Any]:
        """Every party's part of a classification."""
        opened = self._open(frames)
        return {name: self._scoring(share, opened[name]) for name, share in self.shares.items()}

    def _scoring(self, share: ModelShare, source: ColumnSource | int) -> Any:
        return scoring(share, source, self.reveal_to, together=self.together)

    def _run(self, parts: Mapping[str, Callable[[Run, Coins], Role[Any]]], coins: Coins) -> Outcome:
        study = next(iter(self.shares.values())).study
        names = tuple(self.columns.owners)
        runs = local_runs(names, study=study, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
        own = {name: coins.derive(f"prediction {runs[name].run_id} {name}") for name in names}
        return run_in_memory({name: parts[name](runs[name], own[name]) for name in names})

    def combine(self) -> NaiveBayes:
        """Simulation only: join the shares in one place and return the plain model they stand for."""
        return NaiveBayes.from_statistics(self.statistics(), alpha=self.columns.alpha)

    def statistics(self) -> Statistics:
        """Simulation only: the exact statistics that the shares of sums stand for."""
        columns, book = self.columns, self.columns.codebook
        for share in self.shares.values():
            share.require_alive()
        holder = self.shares[columns.class_holder]
        counts = _class_counts(holder.local)
        named: dict[str, Any] = {
            "class_counts": [int(value) for value in counts],
            "counts": {},
            "n": {},
            "sums": {},
            "squares": {},
        }
        for party, share in self.shares.items():
            if party in columns.labelled:
                for section in ("counts", "n", "sums", "squares"):
                    named[section].update((share.local or {})["statistics"].get(section, {}))
                continue
            words = holder.sums[party] + share.sums[columns.class_holder]
            for name, found in columns.layout(party).decode(words, counts).items():
                if "count" in found:
                    named["counts"][name] = found["count"]
                    continue
                named["sums"][name] = [row[0] for row in found["sum"]]
                named["squares"][name] = [row[0] for row in found["square"]]
                if book.feature(name).optional:
                    named["n"][name] = [row[0] for row in found["n"]]
        return Statistics.from_names(book, named)

    def destroy(self, party: str) -> None:
        """One party erases its share. Nobody can classify any more."""
        if party not in self.shares:
            raise ConfigError(f"{party!r} holds no share of this model")
        self.shares[party].destroy()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self, frames: Mapping[str, Any]) -> dict[str, ColumnSource | int]:
        if set(frames) != set(self.columns.owners):
            raise ConfigError("predict takes one frame per party: " + ", ".join(self.columns.owners))
        opened = {name: open_columns(frames[name], self.columns.codebook) for name, held in self.columns.owners.items() if held}
        sizes = {source.rows for source in opened.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise DataError("all parties must bring the same instances, at least one, in the same order")
        rows = sizes.pop()
        return {name: opened.get(name, rows) for name in self.columns.owners}


# -- training ------------------------------------------------------------------------------------------------------------


def simulate(
    study: Study,
    sources: Mapping[str, Any],
    *,
    coins: Coins,
    ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
) -> JointResult | Result | PrintedResult:
    """Train a study over columns with every party in this process. `noisy_histograms` gives a `Result` with a plain model.

    `ledgers` pay where joined_sums opens a noisy estimate of the overlap.
    """
    if study.protocol == "joined_sums":
        from blindbayes.study import joined

        return joined.simulate(study, sources, coins=coins, ledgers=ledgers)
    if ledgers:
        raise ConfigError(f"{study.protocol} takes no ledgers: only the noisy overlap of joined_sums is paid for here")
    if study.protocol == "scalar_product":
        from blindbayes.study import printed_columns

        return printed_columns.simulate(study, sources, coins=coins)
    if study.protocol == "noisy_histograms":
        from blindbayes.study import noisy_columns

        return noisy_columns.simulate(study, sources, coins=coins)
    return _simulate_shared(study, sources, coins)


def _simulate_shared(study: Study, sources: Mapping[str, Any], coins: Coins) -> JointResult:
    if study.protocol != "class_sums":
        raise ConfigError(
            f"there is no columns protocol {study.protocol!r} for rows that line up; known: class_sums, "
            "noisy_histograms, scalar_product"
        )
    options_of(study)
    keys = (study.key,) if isinstance(study.key, str) else tuple(study.key or ())
    opened = {name: open_columns(source, study.codebook, ignore=keys) for name, source in sources.items()}
    columns = agree_columns(study, opened)
    require_learner(study.reveal_to, columns.owners)
    parts = {name: training(study, columns, name, source) for name, source in opened.items()}
    runs = local_runs(tuple(sources), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    own = {name: coins.derive(f"training {runs[name].run_id} {name}") for name in sources}
    outcome = run_in_memory({name: part.role(runs[name], own[name]) for name, part in parts.items()})
    shares = {name: part.share(outcome.outputs[name], study.sha256) for name, part in parts.items()}
    together = study.options.get("together", False)
    model = JointModel(columns, shares, study.reveal_to, together=together)
    if not together:  # what training set up serves prediction too
        model._kept = {name: Transfers.of(outcome.outputs[name]) for name in parts}
    report = column_report(("transfer", "class_sums", "shared_model"), outcome, about=about_columns(columns, study.sha256))
    statement = training_statement(study, columns, study.sha256)
    return JointResult(model, leakage_of(outcome), outcome.cost, statement, tuple(sources), report)


def options_of(study: Study) -> dict[str, Any]:
    """The options of class_sums, checked, with their defaults."""
    if study.epsilon is not None:
        raise PrivacyError("class_sums opens nothing, so there is nothing to add noise to; leave epsilon out")
    if unknown := sorted(set(study.options) - set(_OPTIONS)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(_OPTIONS)}")
    queries = study.options.get("queries")
    if queries is not None and (type(queries) is not int or queries < 1):
        raise ConfigError("the option queries is the number of instances that may be classified")
    together = study.options.get("together", False)
    if not isinstance(together, bool):
        raise ConfigError("the option together is true or false")
    return {"queries": queries, "together": together}


def require_learner(reveal_to: str, parties: Iterable[str]) -> None:
    """Who learns the class is everybody or a party."""
    if reveal_to != "all" and reveal_to not in parties:
        raise ConfigError(f"reveal_to is 'all' or a party; {reveal_to!r} is none")


def require_held(columns: Columns, party: str, source: ColumnSource) -> None:
    """Refuse a table that does not hold what the study says this party holds."""
    found = {feature.name for feature in source.features}
    if missing := [name for name in columns.owners[party] if name not in found]:
        raise DataError(f"{party}: the table lacks column {missing[0]!r}, which the study says this party holds; add it")
    if extra := sorted(found - set(columns.owners[party])):
        raise DataError(f"{party}: the table holds column {extra[0]!r}, which the study gives to another party; drop it")


class ColumnTraining:
    """One party's part of training by class_sums. See `part.Training`."""

    def __init__(self, columns: Columns, party: str, source: ColumnSource, queries: int | None) -> None:
        self.columns, self.party = columns, party
        self._table = Steady(source, training=True)
        self._queries = queries
        self._local: dict[str, Any] | None = None

    @property
    def rows(self) -> int:
        """Rows of this party."""
        return self._table.rows

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded rows."""
        return self._table.digest(key)

    def role(self, run: Run, coins: Coins) -> Role[Trained]:
        """The class holder's role, or an attribute holder's."""
        if self.party in self.columns.labelled:
            self._local = count_local(self.columns, self.party, self._table)
        if self.party != self.columns.class_holder:
            return (yield from roles.train_attribute_holder(run, self.columns, self._table.blocks(), coins))
        counts = _class_counts(self._local)
        return (yield from roles.train_class_holder(run, self.columns, counts, self._table.labels, coins))

    def share(self, trained: Trained, study: str) -> ModelShare:
        """What this party keeps."""
        public = replace(self.columns, training=trained.training).to_dict()
        return ModelShare(study, self.party, public, trained.tables, trained.sums, self._local, self._queries)


def training(study: Study, columns: Columns, party: str, source: ColumnSource) -> ColumnTraining:
    """A party's part of training, its table checked against what is agreed."""
    require_held(columns, party, source)
    if (party in columns.labelled) and not source.labelled:
        raise DataError(f"{party}: the table lacks the class column {columns.codebook.target!r}")
    if source.rows != columns.rows:
        raise DataError(f"{party}: the table has another number of rows than the study, which says {columns.rows}")
    if columns.rows < study.min_rows:
        raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
    return ColumnTraining(columns, party, source, study.options.get("queries"))


# -- prediction ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Transfers:
    """What a party keeps of the setup of transfers."""

    keepers: dict[str, Keeper] = field(default_factory=dict, repr=False)
    planter: Planter | None = field(default=None, repr=False)
    mesh: Mesh | None = field(default=None, repr=False)

    @classmethod
    def of(cls, trained: Trained) -> Transfers:
        """Those of training."""
        return cls(dict(trained.keepers), trained.planter)


class ColumnScoring:
    """One party's part of a joint classification. See `part.Scoring`."""

    def __init__(self, share: ModelShare, source: ColumnSource | int, reveal_to: str = "all", together: bool = False) -> None:
        self.share, self.party, self.columns = share, share.party, columns_of(share.public)
        self._reveal_to, self._together = reveal_to, together
        self.kept: Transfers | None = None  # transfers from before; None: the role sets them up
        if isinstance(source, int):
            if self.columns.owners[self.party]:
                raise ConfigError(f"{self.party} holds columns: it brings rows, not only their number")
            self._table, self.count = None, source
        else:
            require_held(self.columns, self.party, source)
            self._table, self.count = Steady(source, training=False, size=_BATCH), source.rows
        if self.count < 1:
            raise DataError("a batch has at least one instance")

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded instances."""
        return bytes(32) if self._table is None else self._table.digest(key)

    def role(self, run: Run, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        """Batch after batch, on transfers that are set up first."""
        kept = self.kept
        if kept is None:
            kept = yield from self.connect(run, coins.derive("transfers"))
        learned: list[npt.NDArray[np.int64]] = []
        for at, block in enumerate(self._batches()):
            found = yield from self._batch(run, block, kept, coins.derive(f"batch {at}"))
            if found is not None:
                learned.append(found)
        return np.concatenate(learned) if learned else None

    def connect(self, run: Run, coins: Coins) -> Role[Transfers]:
        """Agree on what is public about this classification, then set up the transfers."""
        holder, kept = self.columns.class_holder, Transfers()
        facts = json.dumps([self.columns.to_dict(), self.count, self._reveal_to, self._together], sort_keys=True).encode()
        others = self.columns.holders if self.party == holder else (holder,)
        for name in others:
            yield from transfer.agree(run, name, "classification", facts, coins)
        for name in others:
            if self.party == holder:
                kept.keepers[name] = yield from transfer.keeper(run, name, coins)
            else:
                kept.planter = yield from transfer.planter(run, name, coins)
        if self._together:
            kept.mesh = yield from shared_argmax.connect(run, coins)
        return kept

    def _batches(self) -> Iterator[Block]:
        if self._table is not None:
            yield from self._table.blocks()
            return
        for low in range(0, self.count, _BATCH):
            yield Block(None, {}, min(_BATCH, self.count - low))

    def _batch(self, run: Run, block: Block, kept: Transfers, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        query = self.columns.query(block.rows, self._reveal_to, together=self._together)
        local, tables = self._local_scores(block), self.share.tables
        if local is not None and self.party == self.columns.class_holder:
            return (yield from roles.predict_class_holder(run, query, local, tables, kept.keepers, coins, kept.mesh))
        if kept.planter is None:
            raise LocalProtocolError("an attribute holder has planted its transfers")
        own = tables.get(self.columns.class_holder, {})
        return (
            yield from roles.predict_attribute_holder(run, query, local, own, block.columns, kept.planter, coins, kept.mesh)
        )

    def _local_scores(self, block: Block) -> npt.NDArray[np.float64] | None:
        """What a party that knows the class of its rows computes alone."""
        columns, party = self.columns, self.party
        if party not in columns.labelled:
            return None
        scores = np.zeros((block.rows, len(columns.codebook.classes)))
        if party == columns.class_holder:
            scores += roles.prior(_class_counts(self.share.local), columns.plan)
        if columns.owners[party]:
            parameters = local_parameters(columns, party, self.share.local or {})
            for name, term in parameters.terms.items():
                scores += parameters.score(name, term, block.columns[name])
        return scores


def scoring(share: ModelShare, source: ColumnSource | int, reveal_to: str = "all", together: bool = False) -> ColumnScoring:
    """A party's part of a classification, from its share alone; a party without columns brings the number of instances."""
    return ColumnScoring(share, source, reveal_to, together=together)


def columns_of(public: Mapping[str, Any]) -> Columns:
    """What is public about a study, from a share file."""
    book = Codebook.from_dict(json.loads(public["codebook"]))
    owners = {party: tuple(names) for party, names in public["owners"].items()}
    return Columns(book, public["rows"], owners, tuple(public["labelled"]), public["alpha"], public["training"])


def _class_counts(local: Mapping[str, Any] | None) -> npt.NDArray[np.int64]:
    if local is None:
        raise LocalProtocolError("the class holder knows the class counts")
    return np.array(local["class_counts"], dtype=np.int64)


# -- reports and public facts ----------------------------------------------------------------------------------------------


def about_columns(columns: Columns, sha256: str, title: str = "", run: str = "", date: str = "") -> About:
    """Which run it was, for the leak report: who brings which columns."""
    holds = {
        name: (*features, *((columns.codebook.target,) if name in columns.labelled else ()))
        for name, features in columns.owners.items()
    }
    return About(title, sha256, run, date, tuple(columns.owners), holds)


def column_report(
    protocols: tuple[str, ...], outcome: Outcome, parties: int | None = None, about: About | None = None
) -> LeakReport:
    """The leak report of a run over columns; `parties` where the outcome is that of one site."""
    transcript = outcome.transcript
    follows = (
        "A share alone is uniform: whoever holds one, and the messages above, learns nothing of the other's columns beyond "
        "what was opened.",
        "Both parties' shares together are the model. Each classification tells something of it; limit their number.",
    )
    size = len(transcript.received) if parties is None else parties
    opened = {name: tuple(dict.fromkeys(labels)) for name, labels in outcome.opened.items()}  # once, not once per batch
    return leak_report(protocols, size, transcript.received, opened, transcript.entries, follows, transcript.traffic, about)


def agree_columns(study: Study, opened: Mapping[str, ColumnSource]) -> Columns:
    sizes = {source.rows for source in opened.values()}
    if len(sizes) != 1:
        raise DataError("the parties' tables have different numbers of rows; line them up by key first, or set aligned=False")
    labelled = tuple(name for name, source in opened.items() if source.labelled)
    owners = {name: tuple(feature.name for feature in source.features) for name, source in opened.items()}
    rows = sizes.pop()
    if rows < 1:
        raise DataError("the tables are empty")
    return Columns(study.codebook, rows, owners, labelled, study.alpha)


def _sub_codebook(columns: Columns, party: str) -> Codebook:
    return columns.codebook.with_features(columns.features(party))


def count_local(columns: Columns, party: str, source: ColumnSource | Steady) -> dict[str, Any]:
    """Statistics of a party's own columns, which it computes alone because it knows the class."""
    classes = len(columns.codebook.classes)
    counts = np.zeros(classes, dtype=np.int64)
    total: Statistics | None = None
    layout = Layout(_sub_codebook(columns, party)) if columns.owners[party] else None
    for block in source.blocks():
        if block.labels is None:
            raise LocalProtocolError("a labelled party has the class column")
        counts += np.bincount(block.labels, minlength=classes)
        if layout is not None:
            part = count_block(layout, block)
            total = part if total is None else total + part
    named = total.by_name() if total is not None else {}
    return {"class_counts": [int(value) for value in counts], "statistics": named}


def local_parameters(columns: Columns, party: str, local: Mapping[str, Any]) -> Parameters:
    statistics = Statistics.from_names(_sub_codebook(columns, party), local["statistics"])
    return estimate(statistics, alpha=columns.alpha)


def whole_block(source: ColumnSource) -> Block:
    blocks = list(source.blocks(training=False))
    if not blocks:
        return Block(None, {feature.name: np.zeros(0, dtype=np.int64) for feature in source.features}, 0)
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return Block(None, columns, sum(block.rows for block in blocks))


def leakage_of(outcome: Outcome) -> dict[str, Leak]:
    return {
        name: Leak({kind.__name__: (kind.trust.value, count) for kind, count in received.items()}, outcome.opened[name])
        for name, received in outcome.transcript.received.items()
    }


def training_statement(study: Study, columns: Columns, sha256: str) -> str:
    """What training promises, in words; `sha256` is the hash that the parties agreed on."""
    plan, queries, together = columns.plan, study.options.get("queries"), study.options.get("together", False)
    shared = [name for name in columns.holders if columns.shared(name)]
    lines = [
        f"Study {sha256}",
        f"Codebook {study.codebook.sha256}",
        f"Protocols class_sums, shared_model, shared_argmax. Class holder: {columns.class_holder}. "
        f"Shared with it: {', '.join(shared) or 'nobody (all parties know the class)'}.",
        "Training opened nothing. The model exists only as shares, one per party; a share alone is uniform.",
        f"A classification opens the class, to {study.reveal_to}. "
        + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited.")
        + " Repeated queries let the model be read off; limit them.",
        f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of pooled classification wherever "
        f"the two best scores differ by more than {plan.tie_bound:.3g}.",
        "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, computational. "
        "A party that deviates can spoil the result or learn more. The number of rows and of instances is public.",
    ]
    if together:
        lines.append("All parties compare the scores together: no coalition short of all but one learns more than the class.")
    elif len(columns.holders) > 1:
        lines.append(
            f"With more than one attribute holder, {columns.class_holder} and {columns.holders[0]} together can see what "
            "another holder's attributes add to the scores of an instance."
        )
    return "\n\n".join(lines)
