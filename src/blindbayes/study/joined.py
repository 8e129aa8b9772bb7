"""A study over columns whose identifiers do not line up, in one process. See protocol/joined_sums/SPEC.md.

`simulate` trains; the result's `model` is a `JointModel` (left join) or a `JoinedModel` (inner join), which exists only as
shares. At a prediction the parties bring the same instances in the same order, as for rows that line up.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.keys import read_digests, recipe_of, rows_at
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.circuits import ln_error
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.softspoken import Keeper, Planter
from blindbayes.protocol import joined as roles
from blindbayes.protocol import matching, transfer
from blindbayes.protocol.class_sums import RowLayout
from blindbayes.protocol.core import Role
from blindbayes.protocol.joined import Join, Joined
from blindbayes.protocol.joined_sums import LEAST, MOST, Entries, merge, one_hot
from blindbayes.runtime.memory import local_runs, run_in_memory
from blindbayes.statistics import Block, Statistics
from blindbayes.study.columns import JointModel, JointResult, Prediction, column_report, count_local, leakage_of
from blindbayes.study.columns import simulate as simulate_aligned
from blindbayes.study.study import Leak, Study
from blindbayes.wire import Words

_OPTIONS = ("bounds", "join", "min_overlap", "multiplicity", "queries", "reveal", "together")


class JoinedModel(JointModel):
    """A model over an inner join: class counts and every table exist only as shares."""

    def __init__(self, join: Join, shares: Mapping[str, ModelShare], reveal_to: str = "all") -> None:
        super().__init__(join.columns, shares, reveal_to)
        self.join = join
        self._back: tuple[Keeper, Planter] | None = None  # attribute holder's keeper, class holder's planter

    @classmethod
    def load(
        cls, files: Mapping[str, str | os.PathLike[str]], reveal_to: str = "all", *, together: bool = False
    ) -> JoinedModel:
        """From the parties' share files, in one process: for simulation."""
        if together:
            raise ConfigError("a model over an inner join has two parties, who compare together anyway")
        plain = JointModel.load(files, reveal_to)
        public = next(iter(plain.shares.values())).public
        facts = public.get("join")
        if facts is None:
            raise ConfigError("the share files are not of a study over an inner join")
        book = Codebook.from_dict(json.loads(facts["codebook"]))
        join = Join(
            book,
            plain.columns.owners,
            plain.columns.class_holder,
            facts["bounds"],
            facts["inner"],
            facts["duplicates"],
            facts["most"],
            facts["min_overlap"],
            plain.columns.alpha,
        )
        return cls(join, plain.shares, reveal_to)

    @property
    def tie_bound(self) -> float:
        """The class equals that of the plain model of the join wherever its two best scores differ by more than this."""
        plan = self.columns.plan
        return plan.tie_bound + 4 * ln_error(plan.fraction)  # the priors are fixed-point logarithms too

    def _classify(self, blocks: Mapping[str, Block], coins: Coins) -> Prediction:
        """One batch, small enough for memory."""
        if self._back is None:
            raise LocalProtocolError("the transfers of both directions are set up")
        query = self.columns.query(next(iter(blocks.values())).rows, self.reveal_to)
        runs = self._runs(coins)
        holder, other = self.join.class_holder, self.join.holders[0]
        own = {name: coins.derive(f"prediction {runs[name].run_id} {name}") for name in (holder, other)}
        parts: dict[str, Role[Any]] = {
            holder: roles.predict_class_holder(
                runs[holder],
                self.join,
                query,
                self.shares[holder].tables[other],
                blocks[holder].columns,
                self._keepers[other],
                self._back[1],
                own[holder],
            ),
            other: roles.predict_attribute_holder(
                runs[other],
                self.join,
                query,
                self.shares[other].tables[holder],
                blocks[other].columns,
                self._back[0],
                self._planters[other],
                own[other],
            ),
        }
        outcome = run_in_memory(parts)
        learned = [outcome.outputs[name] for name in query.learners]
        if any(not np.array_equal(learned[0], found) for found in learned[1:]):
            raise LocalProtocolError("two parties learned different classes")
        return Prediction(self.classes_[learned[0]], leakage_of(outcome), outcome.cost)

    def statistics(self) -> Statistics:
        """Simulation only: the exact statistics of the join that the shares stand for."""
        for share in self.shares.values():
            share.require_alive()
        join, holder, other = self.join, self.join.class_holder, self.join.holders[0]
        words = self.shares[holder].sums[other] + self.shares[other].sums[holder]
        layout = join.columns.layout(other)
        counts = words[:, layout.words].astype(np.int64)
        found = dict(layout.decode(words[:, : layout.words], counts))
        own = join.own_layout
        if own is not None:
            found |= own.decode(words[:, layout.words + 1 :], counts)
        named: dict[str, Any] = {"class_counts": counts.tolist(), "counts": {}, "n": {}, "sums": {}, "squares": {}}
        for name, kinds in found.items():
            if "count" in kinds:
                named["counts"][name] = kinds["count"]
                continue
            named["sums"][name] = [row[0] for row in kinds["sum"]]
            named["squares"][name] = [row[0] for row in kinds["square"]]
            if join.codebook.feature(name).optional:
                named["n"][name] = [row[0] for row in kinds["n"]]
        return Statistics.from_names(join.codebook, named)

    def _connect(self, coins: Coins) -> None:
        super()._connect(coins)
        if self._back is not None:
            return
        holder, other, runs = self.join.class_holder, self.join.holders[0], self._runs(coins)
        name = runs[holder].run_id
        outcome = run_in_memory(
            {
                other: transfer.keeper(runs[other], holder, coins.derive(f"back keeper {name}")),
                holder: transfer.planter(runs[holder], other, coins.derive(f"back planter {name}")),
            }
        )
        self._back = (outcome.outputs[other], outcome.outputs[holder])


# -- training ------------------------------------------------------------------------------------------------------------


def simulate(study: Study, sources: Mapping[str, Any], *, coins: Coins) -> JointResult:
    """Train a study over columns whose identifiers do not line up, with every party in this process."""
    if study.epsilon is not None:
        raise PrivacyError("joined_sums opens nothing, so there is nothing to add noise to; leave epsilon out")
    options = _options(study)
    recipe = recipe_of(study.codebook, study.key)
    ignored = tuple(part.column for part in recipe.parts)
    opened = {name: open_columns(source, study.codebook, ignore=ignored) for name, source in sources.items()}
    if study.reveal_to != "all" and study.reveal_to not in opened:
        raise ConfigError(f"reveal_to is 'all' or a party; {study.reveal_to!r} is none")
    for name, source in opened.items():
        if source.rows < study.min_rows:
            raise PrivacyError(f"{name}: the study asks for at least {study.min_rows} rows per party")
    salt = bytes.fromhex(study.sha256)
    digests = {name: read_digests(source, recipe, salt) for name, source in opened.items()}
    if options["reveal"] == "matching":
        return _simulate_matched(study, opened, digests, options, coins)
    join = _agree(study, opened, digests, options)
    entries = {name: _entries(join, name, source, digests[name]) for name, source in opened.items()}
    for name, (first, _) in entries.items():
        _require_bound(name, len(first), join.bounds[name])
    runs = local_runs(tuple(sources), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    parts: dict[str, Role[Joined]] = {}
    for name in sources:
        own = coins.derive(f"training {runs[name].run_id} {name}")
        first, second = entries[name]
        if name == join.class_holder:
            parts[name] = roles.train_class_holder(runs[name], join, first, second, own)
        elif second is None:
            raise LocalProtocolError("an attribute holder counts its rows")
        else:
            parts[name] = roles.train_attribute_holder(runs[name], join, first, second, own)
    outcome = run_in_memory(parts)
    local = None if join.inner else count_local(join.columns, join.class_holder, opened[join.class_holder])
    public, queries = join.to_dict(), options["queries"]
    shares = {}
    for name in sources:
        trained: Joined = outcome.outputs[name]
        known = local if name == join.class_holder else None
        shares[name] = ModelShare(study.sha256, name, public, trained.tables, trained.sums, known, queries)
    model = _model(join, shares, study, options, outcome.outputs)
    report = column_report(("transfer", "joined_sums", "shared_model"), outcome)
    return JointResult(model, leakage_of(outcome), outcome.cost, _statement(study, join, queries), tuple(sources), report)


def _simulate_matched(
    study: Study,
    opened: Mapping[str, ColumnSource],
    digests: Mapping[str, list[bytes | None]],
    options: Mapping[str, Any],
    coins: Coins,
) -> JointResult:
    """With reveal = "matching": both learn whom they share, line their rows up, and go on with class_sums."""
    if len(opened) != 2:
        raise ConfigError("the matching is revealed between two parties; with more, leave the option reveal out")
    if study.duplicates == "join":
        raise ConfigError("rows that are to line up need duplicates = 'first' or 'reject'")
    if options["min_overlap"] or options["join"] == "left":
        raise ConfigError("reveal = 'matching' takes neither min_overlap nor join")
    first, second = opened
    entries = {
        name: merge(digests[name], np.arange(source.rows, dtype=np.uint64)[:, None], study.duplicates, 1)
        for name, source in opened.items()
    }
    bounds = _bounds(opened, digests, options)
    for name, found in entries.items():
        _require_bound(name, len(found), bounds[name])
    sizes = matching.Sizes(bounds[first], bounds[second], study.codebook.sha256.encode())
    runs = local_runs((first, second), study=study.sha256, run_id=coins.bytes(16).hex(), coins=coins, signed=False)
    own = {name: coins.derive(f"matching {runs[name].run_id} {name}") for name in opened}

    def asker() -> Role[Any]:
        keeper = yield from transfer.keeper(runs[first], second, own[first])
        return (yield from matching.asker(runs[first], second, sizes, entries[first].items, keeper, own[first]))

    def owner() -> Role[Any]:
        planter = yield from transfer.planter(runs[second], first, own[second])
        return (yield from matching.owner(runs[second], first, sizes, entries[second].items, planter, own[second]))

    outcome = run_in_memory({first: asker(), second: owner()})
    if not len(outcome.outputs[first]):
        raise DataError("the parties share no identifier")
    aligned = {}
    for name, source in opened.items():
        # Entries stand in the order of their digests at both parties, so what matches lines up.
        places = entries[name].words[outcome.outputs[name], 0].astype(np.int64)
        aligned[name] = rows_at(source, places)
    kept = {key: value for key, value in study.options.items() if key in ("queries", "together")}
    lined_up = copy.copy(study)
    lined_up.protocol, lined_up.options, lined_up.key, lined_up.aligned = "class_sums", kept, None, True
    result = simulate_aligned(lined_up, aligned, coins=coins)
    if not isinstance(result, JointResult):
        raise LocalProtocolError("class_sums gives a joint result")
    before, leakage = leakage_of(outcome), {}
    for name, leak in result.leakage.items():
        leakage[name] = Leak({**before[name].received, **leak.received}, before[name].opened + leak.opened)
    statement = (
        f"Study {study.sha256}\n\nBefore training, both parties learned which identifiers they share (matching): who is a "
        "customer of both is known to both. What follows is the training on those rows.\n\n" + result.statement
    )
    return JointResult(result.model, leakage, result.cost, statement, result.included)


def _options(study: Study) -> dict[str, Any]:
    if unknown := sorted(set(study.options) - set(_OPTIONS)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(_OPTIONS)}")
    most = 4 if study.duplicates == "join" else 1
    found: dict[str, Any] = {"bounds": {}, "join": None, "min_overlap": 0, "multiplicity": most}
    found |= {"queries": None, "reveal": "nothing", "together": False, **study.options}
    if found["reveal"] not in ("nothing", "matching"):
        raise ConfigError("the option reveal is 'nothing' or 'matching'")
    for name in ("min_overlap", "multiplicity"):
        if type(found[name]) is not int:
            raise ConfigError(f"the option {name} is a whole number")
    if found["queries"] is not None and (type(found["queries"]) is not int or found["queries"] < 1):
        raise ConfigError("the option queries is the number of instances that may be classified")
    if not isinstance(found["together"], bool):
        raise ConfigError("the option together is true or false")
    if found["join"] not in (None, "inner", "left"):
        raise ConfigError("the option join is 'inner' or 'left'")
    bounds = found["bounds"]
    if not isinstance(bounds, Mapping) or any(type(bound) is not int or bound < LEAST for bound in bounds.values()):
        raise ConfigError(f"the option bounds gives each party the number that its identifiers are padded to, {LEAST} or more")
    return found


def _bounds(
    opened: Mapping[str, ColumnSource], digests: Mapping[str, list[bytes | None]], options: Mapping[str, Any]
) -> dict[str, int]:
    if unknown := sorted(set(options["bounds"]) - set(opened)):
        raise ConfigError(f"bounds name {unknown[0]!r}, who is no party")
    bounds = {}
    for name in opened:
        # Without an agreed bound the number of identifiers is rounded up to a power of two, and that is what the others see.
        count = len({digest for digest in digests[name] if digest is not None})
        bounds[name] = options["bounds"].get(name, min(MOST, max(LEAST, 1 << max(0, count - 1).bit_length())))
    return bounds


def _require_bound(party: str, count: int, bound: int) -> None:
    if count > bound:
        raise DataError(f"{party}: more identifiers than the agreed bound of {bound}; agree on a larger one")


def _agree(
    study: Study, opened: Mapping[str, ColumnSource], digests: Mapping[str, list[bytes | None]], options: Mapping[str, Any]
) -> Join:
    labelled = [name for name, source in opened.items() if source.labelled]
    if len(labelled) != 1:
        raise ConfigError(
            f"one party, and only one, must have the class column {study.codebook.target!r} where identifiers do not line up"
        )
    bounds = _bounds(opened, digests, options)
    owners = {name: tuple(feature.name for feature in source.features) for name, source in opened.items()}
    inner = len(opened) == 2 if options["join"] is None else options["join"] == "inner"
    if inner and options["together"]:
        raise ConfigError("an inner join has two parties, who compare together anyway; leave the option together out")
    return Join(
        study.codebook,
        owners,
        labelled[0],
        bounds,
        inner,
        study.duplicates,
        options["multiplicity"],
        options["min_overlap"],
        study.alpha,
    )


def _entries(join: Join, party: str, source: ColumnSource, digests: list[bytes | None]) -> tuple[Entries, Entries | None]:
    """What a party brings: the class holder its labels and its own columns, class by class; another its rows and counts."""
    classes = len(join.codebook.classes)
    is_holder = party == join.class_holder
    layout = join.own_layout if is_holder else join.columns.layout(party)
    labels: list[Words] = []
    rows: list[Words] = []
    for block in source.blocks():
        if is_holder:
            if block.labels is None:
                raise LocalProtocolError("the class holder has the class column")
            hot = one_hot(block.labels, classes)
            labels.append(hot)
            if layout is not None:
                rows.append((hot[:, :, None] * layout.encode(block)[:, None, :]).reshape(block.rows, -1))
        elif layout is not None:
            rows.append(np.concatenate([layout.encode(block), np.ones((block.rows, 1), dtype=np.uint64)], axis=1))
    if is_holder:
        first = merge(digests, _stack(labels, classes), join.duplicates, join.most)
        if layout is None:
            return first, None
        return first, merge(digests, _stack(rows, classes * layout.words), join.duplicates, join.most)
    found = merge(digests, _stack(rows, _require(layout).words + 1), join.duplicates, join.most)
    return found, Entries(found.items, np.ascontiguousarray(found.words[:, -1:]))


def _require(layout: RowLayout | None) -> RowLayout:
    if layout is None:
        raise LocalProtocolError("an attribute holder has a layout")
    return layout


def _stack(parts: list[Words], width: int) -> Words:
    return np.concatenate(parts) if parts else np.zeros((0, width), dtype=np.uint64)


def _model(
    join: Join, shares: Mapping[str, ModelShare], study: Study, options: Mapping[str, Any], outputs: Mapping[str, Joined]
) -> JointModel:
    holder = join.class_holder
    model: JointModel
    if join.inner:
        other = join.holders[0]
        inner = JoinedModel(join, shares, study.reveal_to)
        keeper = outputs[other].back_keeper
        inner._back = None if keeper is None else (keeper, outputs[holder].back_planters[other])
        model = inner
    else:
        model = JointModel(join.columns, shares, study.reveal_to, together=options["together"])
    model._keepers = dict(outputs[holder].keepers)
    model._planters = {name: planter for name in join.holders if (planter := outputs[name].planter) is not None}
    return model


def _statement(study: Study, join: Join, queries: int | None) -> str:
    plan = join.columns.plan
    kind = (
        "Counted: the rows of the SQL inner join on the identifier, class counts and all columns; all of it stays in shares."
        if join.inner
        else "Counted: every row of the class holder (its class counts and own columns are known to it alone), and for each "
        "attribute holder the rows of its own SQL join with the class holder; elsewhere its columns are missing."
    )
    bounds = ", ".join(f"{name} {bound}" for name, bound in join.bounds.items())
    lines = [
        f"Study {study.sha256}",
        f"Codebook {study.codebook.sha256}",
        f"Protocols joined_sums, shared_model, shared_argmax. Class holder: {join.class_holder}.",
        kind,
        "Who is in the join, and how many, was not opened"
        + (
            f"; one bit was: that at least {join.min_overlap} rows joined (per pair of parties). Whoever knows of "
            f"{join.min_overlap - 1} matches learns from it about one more: limit how often such studies run."
            if join.min_overlap
            else "."
        ),
        f"Public: the numbers that identifiers are padded to ({bounds}), at most {join.most} rows per identifier and party, "
        f"duplicates: {join.duplicates}. Identifiers and their digests never left a site.",
        f"A classification opens the class, to {study.reveal_to}; where the parties bring the same instances in one order, "
        "each knows whom they score together; a party that brings nulls learns the number of instances alone. "
        + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited.")
        + " Repeated queries let the model be read off; limit them.",
        f"Scores: {plan.bits} bits, {plan.fraction} after the point.",
        "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, computational; "
        "wrong results with probability below 2^-38.",
    ]
    return "\n\n".join(lines)
