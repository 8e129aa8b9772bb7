"""One party's side of scoring everybody that one party knows, with the others' columns where they have the same person.

See protocols/private_join/scores/SPEC.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.tweaks import Block128
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.identifiers import read_digests, recipe_of
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join.scores import roles as joined_scores
from blindbayes.protocols.private_join.scores.roles import NONE, HelperInput, JoinedScoresSetup, Scope, ScorerInput
from blindbayes.protocols.private_join.sums.inputs import merge
from blindbayes.protocols.shared_training import columns as column_roles
from blindbayes.protocols.shared_training import shared_model
from blindbayes.protocols.shared_training.shared_model import ScoreLayout
from blindbayes.protocols.shared_training.shared_model.score_layout import GaussianLayout
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters
from blindbayes.study.tasks.classify import Scoring
from blindbayes.study.tasks.columns import (
    describe_coalitions,
    keyed_digest,
    local_parameters,
    require_bound,
    require_held,
    whole_block,
)
from blindbayes.study.tasks.public import join_of_share

IntArray = npt.NDArray[np.int64]


class HiddenScoring(Scoring):
    """One party's side of scoring over a hidden join: the scorer's, or a helper's.

    The scorer's role returns a class per row of its table, -1 where a row gets none: a second row of an identifier, and with
    the scope "shared" a row whose identifier the other does not have. A helper's returns None.
    """

    protocols = ("transfer", "joined_scores", "shared_argmax")

    def __init__(
        self,
        share: ModelShare,
        source: ColumnSource,
        to: str,
        scope: Scope = "everybody",
        *,
        compare_all: bool = False,
        tally: bool = False,
    ) -> None:
        if share.public.get("audit_rate"):
            raise ConfigError(
                "over a hidden join the answering party knows which places hold people, so it would recognise dummies; this "
                "study asks for audits: bring the same instances in one order"
            )
        share.require_alive()
        self.share, self.party, self._tally = share, share.party, tally
        self.hidden = JoinedScoresSetup(join_of_share(share.public), to, scope, compare_all, tally)
        self.count = self.hidden.charged  # whatever the scorer's number of identifiers, which nobody else may know
        join = self.hidden.join
        require_held(join.columns, self.party, source)
        recipe = recipe_of(join.codebook, join.key or None)
        self._digests = read_digests(source, recipe, bytes.fromhex(share.study))
        self._rows = source.rows
        self._columns: Mapping[str, IntArray] = whole_block(source).columns if source.features else {}
        self._labels = _labels(source) if tally and self.party == to else None
        # One row speaks for an identifier: the first, unless the study rejects a second.
        policy = "reject" if join.duplicates == "reject" else "first"
        entries = merge(self._digests, np.arange(source.rows, dtype=np.uint64)[:, None], policy, 1)
        self._items, self._places = entries.items, entries.words[:, 0].astype(np.int64)
        self._nameless = np.zeros(0, dtype=np.int64)
        if self.party == to and scope == "everybody":  # rows without an identifier join with nothing, and get a class too
            self._nameless = np.flatnonzero([digest is None for digest in self._digests]).astype(np.int64)
        require_bound(self.party, len(self._places) + len(self._nameless), join.bounds[self.party])

    @property
    def tallied(self) -> int:
        return len(self._places) + len(self._nameless)

    def digest(self, key: bytes) -> bytes:
        asked = (self.hidden.to, self.hidden.scope, sorted(self._columns), self._tally)
        facts = self.hidden.join.facts() + repr(asked).encode()
        arrays = [
            *([] if self._labels is None else [self._labels]),
            self._items,
            self._places,
            self._nameless,
            *(self._columns[name] for name in sorted(self._columns)),
        ]
        return keyed_digest(key, facts, arrays)

    def max_bytes(self) -> int | None:
        return link_bytes.hidden(self.hidden)

    def role(self, run: Run, coins: Coins) -> Role[IntArray | None]:
        if run.study != self.share.study:  # identifiers are hashed under the share's
            raise LocalProtocolError("the share is of another study than the run")
        links = yield from joined_scores.connect(run, self.hidden, coins.derive("transfers"))
        if self.party != self.hidden.to:
            yield from joined_scores.helper(run, self.hidden, self._helped(), links, coins.derive("helper"))
            return None
        rows = np.concatenate([self._places, self._nameless])
        nobody: Block128 = coins.derive("nameless").words(2 * len(self._nameless)).reshape(-1, 2)
        items = np.concatenate([self._items, nobody])
        scored = yield from joined_scores.scorer(run, self.hidden, self._asked(items, rows), links, coins.derive("scorer"))
        if self._tally:
            return scored
        classes = np.full(self._rows, NONE, dtype=np.int64)
        classes[rows] = scored
        return classes

    def conclusions(self) -> tuple[str, ...]:
        hidden, to, others = self.hidden, self.hidden.to, " and ".join(self.hidden.helpers)
        know = "knows" if len(hidden.helpers) == 1 else "know"
        lines = [
            f"{others} learned that {to} asked, and that it knows at most {hidden.count} people: neither whom, nor how many, "
            "nor who is shared, nor a class."
        ]
        if self._tally:
            return (
                *lines,
                f"{to} learned how many persons in its table have which true and which predicted class, and no person's class. "
                "Where a true class has one person, these totals are that person's predicted class.",
            )
        if hidden.scope == "shared":
            known = f"{to} learned which persons in its table {others} {know} too (shared_identifiers)"
            lines.append(f"{known}, and the class of those.")
        else:
            lines.append(
                f"{to} learned a class for everybody it knows, and did not learn who is shared. A class that is not the one "
                f"its own columns give shows that {others} {know} that person."
            )
        if len(hidden.helpers) > 1:
            lines.append(describe_coalitions(hidden.join.columns, compare_all=hidden.compare_all))
        lines.append(
            "A class is computed from the others' columns, so it reveals something about them. A party that scores again after "
            "changing its own columns learns more: limit the number of queries."
        )
        return tuple(lines)

    def statement(self, batch: str, to: str) -> str:
        join = self.hidden.join
        bounds = ", ".join(f"{name} {join.bounds[name]}" for name in join.owners)
        rows = "a second row is an error" if join.duplicates == "reject" else "the first row counts, further ones get no class"
        return "\n\n".join(
            [
                f"{batch}.",
                "Scoring over a hidden join (joined_scores, shared_argmax).",
                *self.conclusions(),
                f"Public: the numbers that identifiers are padded to ({bounds}). Of several rows of one identifier {rows}. "
                f"Charged to every party's query budget: {self.charged}, the bins that a scorer could fill.",
                "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, "
                "computational; wrong results with probability below 2^-40.",
            ]
        )

    # -- what a party brings -----------------------------------------------------------------------------------------------

    def _asked(self, items: Block128, rows: IntArray) -> ScorerInput:
        join, plan = self.hidden.join, self.hidden.join.columns.plan
        columns = {name: codes[rows] for name, codes in self._columns.items()}
        if not join.inner and self.party == join.class_holder:
            scores = np.zeros((len(rows), plan.classes)) + self._log_prior()
            parameters = self._parameters()
            if parameters is not None:
                for name, term in parameters.terms.items():
                    scores += parameters.score(name, term, columns[name])
            known, prior = column_roles.fixed_point(scores, plan), self._prior_share()
            return ScorerInput(items, known, columns, self.share.tables, prior, self._true(rows))
        tables = self.share.tables[self.hidden.helpers[0]]
        own = {name: tables[name] for name in self.hidden.own}
        known = shared_model.score(own, columns, plan, len(rows))
        prior = self._prior_share()
        return ScorerInput(items, lm.add(known, prior[None]), columns, self.share.tables, prior, self._true(rows))

    def _true(self, rows: IntArray) -> IntArray | None:
        return None if self._labels is None else self._labels[rows]

    def _helped(self) -> HelperInput:
        join, plan = self.hidden.join, self.hidden.join.columns.plan
        columns = {name: codes[self._places] for name, codes in self._columns.items()}
        tables: Mapping[str, Limbs] = self.share.tables.get(self.hidden.to, {})
        theirs = {name: tables[name] for name in self.hidden.own}
        if not join.inner and self.party == join.class_holder:
            prior = column_roles.fixed_point(self._log_prior()[None], plan)[0]
            parameters = self._parameters()
            whole = {} if parameters is None else whole_tables(parameters, plan)
            return HelperInput(self._items, columns, prior, whole, theirs)
        return HelperInput(self._items, columns, self._prior_share(), tables, theirs)

    def _prior_share(self) -> Limbs:
        """Return its share of the prior, (K - 1, limbs); in a left join the class holder adds the prior itself."""
        join, plan = self.hidden.join, self.hidden.join.columns.plan
        if not join.inner:
            return np.zeros((plan.classes - 1, plan.limbs), dtype=np.uint64)
        other = next(name for name in join.owners if name != self.party)
        share: Limbs = self.share.tables[other][join.codebook.target][0, 1]
        if join.weights and self.party == join.class_holder:  # public: added to one of the two shares
            share = lm.add(share, column_roles.fixed_point(plan.log_weights[None], plan)[0])
        return share

    def _log_prior(self) -> npt.NDArray[np.float64]:
        if self.share.local is None:
            raise LocalProtocolError("the class holder knows the class counts of a left join")
        counts = np.array(self.share.local["class_counts"], dtype=np.int64)
        return column_roles.prior(counts, self.hidden.join.columns.plan)

    def _parameters(self) -> Parameters | None:
        columns = self.hidden.join.columns
        return local_parameters(columns, self.party, self.share.local or {}) if columns.owners[self.party] else None


def _labels(source: ColumnSource) -> IntArray:
    """Return the true class of every row."""
    if not source.labelled:
        raise DataError(f"an evaluation needs the class of every row: add the column {source.codebook.target!r}")
    return np.concatenate([block.known_labels for block in source.blocks(training=True)])


def open_keyed(share: ModelShare, source: Any) -> ColumnSource:
    """Open a party's table with its identifiers, for `HiddenScoring`."""
    join = join_of_share(share.public)
    names = tuple(part.column for part in recipe_of(join.codebook, join.key or None).parts)
    return open_columns(source, join.columns.codebook, ignore=names)


def whole_tables(parameters: Parameters, plan: ScoreLayout) -> dict[str, Limbs]:
    """Return score tables of parameters in clear, as `shared_model` shares them: entry 0 is 0, classes against class 0."""
    tables = {}
    for name, term in parameters.terms.items():
        own = plan.features[name]
        if isinstance(term, Histogram):
            entries = term.log_prob.T[None]  # (1, values, K)
        elif isinstance(own, GaussianLayout) and isinstance(term, Gaussian):
            scale, centre = float(own.feature.scale), float(own.feature.centre)
            finite = np.isfinite(term.variance)
            variance = np.where(finite, term.variance, 1.0) * scale * scale
            mean = np.where(finite, term.mean, 0.0) * scale - centre
            square, linear = -0.5 / variance, mean / variance
            constant = -0.5 * mean * mean / variance - 0.5 * np.log(variance)
            weights = 2.0 ** np.arange(own.code_bits)
            weights[-1] *= -1  # two's complement
            rows = [constant[None], weights[:, None] * linear, 2.0 ** np.arange(own.square_bits)[:, None] * square]
            entries = np.where(finite, np.concatenate(rows), 0.0)[:, None]  # (selectors, 1, K)
        else:
            raise LocalProtocolError("the parameters do not fit the plan")
        scaled = np.rint((entries[..., 1:] - entries[..., :1]) * 2.0**plan.fraction)
        table = np.zeros((own.selectors, own.entries, plan.classes - 1, plan.limbs), dtype=np.uint64)
        table[:, 1:] = lm.cut(lm.from_floats(scaled, plan.limbs), plan.bits)
        tables[name] = table
    return tables
