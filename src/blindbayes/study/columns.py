"""A study over columns in one process: every party's role runs here, each message really encoded and decoded.

`simulate` trains; the result's `model` is a `JointModel`: two or more shares and nothing else. `predict` runs the joint
classification, in which only the class is opened. `combine` joins the shares in one place, to compare with pooled training;
it exists for simulation alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from blindbayes.protocol.core import Role
from blindbayes.protocol.shared_argmax import Mesh
from blindbayes.report import LeakReport, leak_report, run_files, seal_files
from blindbayes.runtime.folder import write_folder
from blindbayes.runtime.memory import Outcome, local_runs, run_in_memory
from blindbayes.runtime.transcript import Cost
from blindbayes.statistics import Block, Layout, Statistics, count_block
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
        self._keepers: dict[str, Keeper] = {}
        self._planters: dict[str, Planter] = {}
        self._meshes: dict[str, Mesh] = {}
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
        public = first.public
        book = Codebook.from_dict(json.loads(public["codebook"]))
        owners = {party: tuple(names) for party, names in public["owners"].items()}
        if set(owners) != set(shares):
            raise ConfigError("every party of the study must bring its share file")
        columns = Columns(book, public["rows"], owners, tuple(public["labelled"]), public["alpha"])
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
        blocks = self._query_blocks(frames)
        count = next(iter(blocks.values())).rows
        for share in self.shares.values():  # each party for itself, before it sends anything
            share.charge(count)
        self._connect(coins)
        done = [
            self._classify({party: _cut(block, low) for party, block in blocks.items()}, coins)
            for low in range(0, count, _BATCH)
        ]
        return Prediction(np.concatenate([part.labels for part in done]), done[0].leakage, _added([part.cost for part in done]))

    def _classify(self, blocks: Mapping[str, Block], coins: Coins) -> Prediction:
        """One batch, small enough for memory."""
        query = self.columns.query(next(iter(blocks.values())).rows, self.reveal_to, together=self.together)
        runs = self._runs(coins)
        parts: dict[str, Role[Any]] = {}
        for party, share in self.shares.items():
            own = coins.derive(f"prediction {runs[party].run_id} {party}")
            local = self._local_scores(party, blocks[party])
            if party == self.columns.class_holder:
                if local is None:
                    raise LocalProtocolError("the class holder knows its own scores")
                parts[party] = roles.predict_class_holder(
                    runs[party], query, local, share.tables, self._keepers, own, self._meshes.get(party)
                )
            else:
                tables = share.tables.get(self.columns.class_holder, {})
                planter = self._planters[party]
                parts[party] = roles.predict_attribute_holder(
                    runs[party], query, local, tables, blocks[party].columns, planter, own, self._meshes.get(party)
                )
        outcome = run_in_memory(parts)
        learned = [outcome.outputs[name] for name in query.learners]
        if any(not np.array_equal(learned[0], other) for other in learned[1:]):
            raise LocalProtocolError("two parties learned different classes")
        return Prediction(self.classes_[learned[0]], leakage_of(outcome), outcome.cost)

    def combine(self) -> NaiveBayes:
        """Simulation only: join the shares in one place and return the plain model they stand for."""
        return NaiveBayes.from_statistics(self.statistics(), alpha=self.columns.alpha)

    def statistics(self) -> Statistics:
        """Simulation only: the exact statistics that the shares of sums stand for."""
        columns, book = self.columns, self.columns.codebook
        for share in self.shares.values():
            share.require_alive()
        holder = self.shares[columns.class_holder]
        counts = self._class_counts()
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

    def _class_counts(self) -> npt.NDArray[np.int64]:
        local = self.shares[self.columns.class_holder].local
        if local is None:
            raise LocalProtocolError("the class holder knows the class counts")
        return np.array(local["class_counts"], dtype=np.int64)

    def _query_blocks(self, frames: Mapping[str, Any]) -> dict[str, Block]:
        if set(frames) != set(self.columns.owners):
            raise ConfigError("predict takes one frame per party: " + ", ".join(self.columns.owners))
        blocks: dict[str, Block | None] = {}
        for party, names in self.columns.owners.items():
            if not names:
                blocks[party] = None
                continue
            source = open_columns(frames[party], self.columns.codebook)
            if {feature.name for feature in source.features} != set(names):
                raise DataError(f"{party}: the frame must hold the columns {', '.join(names)}")
            blocks[party] = whole_block(source)
        sizes = {block.rows for block in blocks.values() if block is not None}
        if len(sizes) != 1 or 0 in sizes:
            raise DataError("all parties must bring the same instances, at least one, in the same order")
        rows = sizes.pop()
        return {party: Block(None, {}, rows) if block is None else block for party, block in blocks.items()}

    def _local_scores(self, party: str, block: Block) -> npt.NDArray[np.float64] | None:
        """What a party that knows the class of its rows computes alone."""
        columns = self.columns
        if party not in columns.labelled:
            return None
        local = self.shares[party].local or {}
        scores = np.zeros((block.rows, len(columns.codebook.classes)))
        if party == columns.class_holder:
            scores += roles.prior(self._class_counts(), columns.plan)
        if columns.owners[party]:
            parameters = local_parameters(columns, party, local)
            for name, term in parameters.terms.items():
                scores += parameters.score(name, term, block.columns[name])
        return scores

    def _connect(self, coins: Coins) -> None:
        """Set up the transfers of prediction, if this process has not kept those of training."""
        holder = self.columns.class_holder
        for name in self.columns.holders:
            if name in self._keepers and name in self._planters:
                continue
            runs = self._runs(coins)
            outcome = run_in_memory(
                {
                    holder: transfer.keeper(runs[holder], name, coins.derive(f"keeper {runs[holder].run_id} {name}")),
                    name: transfer.planter(runs[name], holder, coins.derive(f"planter {runs[name].run_id} {name}")),
                }
            )
            self._keepers[name], self._planters[name] = outcome.outputs[holder], outcome.outputs[name]
        if self.together and not self._meshes:
            runs = self._runs(coins)
            parties = self.columns.owners
            made = {
                name: shared_argmax.connect(runs[name], coins.derive(f"mesh {runs[name].run_id} {name}")) for name in parties
            }
            self._meshes = run_in_memory(made).outputs

    def _runs(self, coins: Coins) -> dict[str, Any]:
        study = next(iter(self.shares.values())).study
        return local_runs(tuple(self.columns.owners), study=study, run_id=coins.bytes(16).hex(), coins=coins, signed=False)


# -- training ------------------------------------------------------------------------------------------------------------


def simulate(study: Study, sources: Mapping[str, Any], *, coins: Coins) -> JointResult | Result | PrintedResult:
    """Train a study over columns with every party in this process. `noisy_histograms` gives a `Result` with a plain model."""
    if study.protocol == "scalar_product":
        from blindbayes.study import printed_columns

        return printed_columns.simulate(study, sources, coins=coins)
    if study.protocol == "noisy_histograms":
        from blindbayes.study import noisy_columns

        return noisy_columns.simulate(study, sources, coins=coins)
    return _simulate_shared(study, sources, coins)


def _simulate_shared(study: Study, sources: Mapping[str, Any], coins: Coins) -> JointResult:
    if study.protocol == "joined_sums":
        from blindbayes.study import joined

        return joined.simulate(study, sources, coins=coins)
    if study.protocol != "class_sums":
        raise ConfigError(
            f"there is no columns protocol {study.protocol!r} for rows that line up; known: class_sums, "
            "noisy_histograms, scalar_product"
        )
    if study.epsilon is not None:
        raise PrivacyError("class_sums opens nothing, so there is nothing to add noise to; leave epsilon out")
    if unknown := sorted(set(study.options) - set(_OPTIONS)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(_OPTIONS)}")
    queries = study.options.get("queries")
    if queries is not None and (not isinstance(queries, int) or queries < 1):
        raise ConfigError("the option queries is the number of instances that may be classified")
    together = study.options.get("together", False)
    if not isinstance(together, bool):
        raise ConfigError("the option together is true or false")
    keys = (study.key,) if isinstance(study.key, str) else tuple(study.key or ())
    opened = {name: open_columns(source, study.codebook, ignore=keys) for name, source in sources.items()}
    columns = agree_columns(study, opened)
    if study.reveal_to != "all" and study.reveal_to not in opened:
        raise ConfigError(f"reveal_to is 'all' or a party; {study.reveal_to!r} is none")
    if columns.rows < study.min_rows:
        raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
    locals_ = {name: count_local(columns, name, opened[name]) for name in columns.labelled}
    counts = np.array(locals_[columns.class_holder]["class_counts"], dtype=np.int64)
    runs = local_runs(tuple(sources), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    parts: dict[str, Role[Trained]] = {}
    for name, source in opened.items():
        own = coins.derive(f"training {runs[name].run_id} {name}")
        if name == columns.class_holder:
            parts[name] = roles.train_class_holder(runs[name], columns, counts, partial(_labels, source), own)
        else:
            parts[name] = roles.train_attribute_holder(runs[name], columns, source.blocks(), own)
    outcome = run_in_memory(parts)
    public = columns.to_dict()
    shares = {}
    for name in sources:
        trained: Trained = outcome.outputs[name]
        shares[name] = ModelShare(study.sha256, name, public, trained.tables, trained.sums, locals_.get(name), queries)
    model = JointModel(columns, shares, study.reveal_to, together=together)
    model._keepers = dict(outcome.outputs[columns.class_holder].keepers)
    model._planters = {name: outcome.outputs[name].planter for name in columns.holders}
    report = column_report(("transfer", "class_sums", "shared_model"), outcome)
    statement = _statement(study, columns, queries, together)
    return JointResult(model, leakage_of(outcome), outcome.cost, statement, tuple(sources), report)


def column_report(protocols: tuple[str, ...], outcome: Outcome) -> LeakReport:
    """The leak report of a run over columns."""
    transcript = outcome.transcript
    follows = (
        "A share alone is uniform: whoever holds one, and the messages above, learns nothing of the other's columns beyond "
        "what was opened.",
        "Both parties' shares together are the model. Each classification tells something of it; limit their number.",
    )
    parties = len(transcript.received)
    return leak_report(protocols, parties, transcript.received, outcome.opened, transcript.entries, follows)


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


def _labels(source: ColumnSource) -> Iterator[npt.NDArray[np.int64]]:
    for block in source.blocks():
        if block.labels is None:
            raise LocalProtocolError("the class holder has the class column")
        yield block.labels


def _sub_codebook(columns: Columns, party: str) -> Codebook:
    return columns.codebook.with_features(columns.features(party))


def count_local(columns: Columns, party: str, source: ColumnSource) -> dict[str, Any]:
    """Statistics of a party's own columns, which it computes alone because it knows the class."""
    classes = len(columns.codebook.classes)
    counts = np.zeros(classes, dtype=np.int64)
    total: Statistics | None = None
    layout = Layout(_sub_codebook(columns, party)) if source.features else None
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


def _cut(block: Block, low: int) -> Block:
    columns = {name: codes[low : low + _BATCH] for name, codes in block.columns.items()}
    return Block(None, columns, min(_BATCH, block.rows - low))


def _added(costs: Sequence[Cost]) -> Cost:
    """The cost of batches that run one after the other."""
    total = costs[0]
    for other in costs[1:]:
        total.rounds += other.rounds
        total.messages += other.messages
        total.bytes += other.bytes
        for name, party in total.parties.items():
            more = other.parties[name]
            party.sent += more.sent
            party.sent_bytes += more.sent_bytes
            party.received += more.received
            party.received_bytes += more.received_bytes
            party.effects += more.effects
            party.seconds += more.seconds
    return total


def leakage_of(outcome: Outcome) -> dict[str, Leak]:
    return {
        name: Leak({kind.__name__: (kind.trust.value, count) for kind, count in received.items()}, outcome.opened[name])
        for name, received in outcome.transcript.received.items()
    }


def _statement(study: Study, columns: Columns, queries: int | None, together: bool) -> str:
    plan = columns.plan
    shared = [name for name in columns.holders if columns.shared(name)]
    lines = [
        f"Study {study.sha256}",
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
