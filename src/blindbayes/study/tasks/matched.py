"""joined_sums with reveal = "matching": two parties learn whom they share, line their rows up, and train by class_sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.data.keys import rows_at
from blindbayes.disclosure.value import Exposure
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.private_join.joined import require_reachable
from blindbayes.protocols.private_join.sums.inputs import merge
from blindbayes.protocols.shared_training.columns import ColumnsSetup, Trained
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study, join_study, learner_of
from blindbayes.study.tasks import aligned, joined
from blindbayes.study.tasks.aligned import ColumnTraining, columns_for
from blindbayes.study.tasks.columns import require_learner
from blindbayes.study.tasks.shared import ShareScheme


class MatchedTraining:
    """One party's part. See `part.Training`."""

    def __init__(self, agreement: Agreement, columns: ColumnsSetup, party: str, source: ColumnSource) -> None:
        study = join_study(agreement.study)
        aligned.require_held(columns, party, source)
        self.party, self.rows, self._study, self._columns = party, source.rows, study, columns
        digests = joined.digests_of(study, agreement.sha256, source)  # reads the table, once
        self._source = replace(source, lenient=study.privacy.epsilon is not None)  # with noise no row is an error
        self._entries = merge(digests, np.arange(source.rows, dtype=np.uint64)[:, None], join_study(study).duplicates, 1)
        self._bounds, self._least = joined.params_of(study).bounds, joined.params_of(study).min_overlap
        joined.require_bound(party, len(self._entries), self._bounds[party])
        self._training: ColumnTraining | None = None

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of identifiers and coded rows."""
        arrays: list[Any] = [self._entries.items, self._entries.words]
        for block in self._source.blocks():
            arrays += [*block.columns.values(), *([] if block.labels is None else [block.labels])]
        return joined.keyed_digest(key, self._columns.codebook.canonical(), arrays)

    def role(self, run: Run, coins: Coins) -> Role[Trained]:
        """Matching, then training on the rows that matched, which both know the number of."""
        first, second = self._columns.owners
        sizes = matching.MatchingSetup(self._bounds[first], self._bounds[second], self._study.codebook.sha256.encode())
        own, items = coins.derive("matching"), self._entries.items
        if self.party == first:
            ot_sender = yield from transfer.ot_sender(run, second, own)
            found = yield from matching.asker(run, second, sizes, items, ot_sender, own)
        else:
            ot_receiver = yield from transfer.ot_receiver(run, first, own)
            found = yield from matching.owner(run, first, sizes, items, ot_receiver, own)
        if not len(found):
            raise DataError("the parties share no identifier")
        if len(found) < self._least:  # a model of a few tells their classes, and a party chooses whom it brings
            raise PrivacyError(f"fewer than {self._least} identifiers match, the study's min_overlap; nothing was trained")
        # Entries stand in the order of their digests at both parties, so what matches lines up.
        places = self._entries.words[found, 0].astype(np.int64)
        lined_up = rows_at(self._source, places, self._study.codebook)
        columns = columns_for(self._study, len(places), self._columns.owners, self._columns.labelled)
        self._training = aligned.training(self._study, columns, self.party, lined_up)
        return (yield from self._training.role(run, coins.derive("training")))

    def share(self, trained: Trained, study: str) -> ModelShare:
        if self._training is None:
            raise LocalProtocolError("the parties were not matched")
        return self._training.share(trained, study)


class MatchedScheme(ShareScheme):
    """The matching is opened to both; what follows is as for rows that line up."""

    name = joined.JoinedScheme.name
    params = joined.JoinedSumsParams
    protocols = ("transfer", "matching", "class_sums", "shared_model")
    facts = replace(
        joined.JoinedScheme.facts,
        leaves=(
            "identifiers leave as keyed digests inside an oblivious store, padded to the agreed bound",
            *aligned.AlignedScheme.facts.leaves,
        ),
    )

    def check(self, study: Study) -> None:
        """What hides the overlap does not apply."""
        super().check(study)
        params = joined.params_of(study)
        if join_study(study).duplicates == "join":
            raise ConfigError("rows that are to line up need duplicates = 'first' or 'reject'")
        if params.join == "left" or params.overlap_epsilon is not None:
            raise ConfigError("reveal = 'matching' takes neither overlap_epsilon nor join: the overlap is known then")

    def agree(self, agreement: Agreement) -> ColumnsSetup:
        """Who holds what, of at most as many rows as the smaller bound."""
        held, study, bounds = agreement.holdings, agreement.study, joined.params_of(agreement.study).bounds
        if len(agreement.names) != 2:
            raise ConfigError("the matching is revealed between two parties; with more, leave the option reveal out")
        joined.require_bounds(bounds, agreement.names)
        require_reachable(joined.params_of(study).min_overlap, bounds.values())
        require_learner(learner_of(study), agreement.names)
        rows = min(*bounds.values(), study.codebook.max_rows)
        agreed = columns_for(study, rows, agreement.owners, held.labelled)
        agreed.plan  # noqa: B018 - whether scores fit, and have a least variance, is known now
        return agreed

    def meet(self, study: Study, sites: Mapping[str, Any]) -> Agreement:
        return joined.SCHEME.meet(study, sites)

    def columns(self, agreement: Agreement) -> ColumnsSetup:
        """The public facts, but for the number of rows."""
        found: ColumnsSetup = agreement.public
        return found

    def training(self, agreement: Agreement, party: str, source: ColumnSource) -> MatchedTraining:
        return MatchedTraining(agreement, self.columns(agreement), party, source)

    def told_bit(self, agreement: Agreement, party: str) -> tuple[str, ...]:
        """The other party: it is told more than a bit, and so no more often."""
        return tuple(name for name in agreement.names if name != party)

    def statement(self, agreement: Agreement, overlaps: Mapping[str, int]) -> str:
        return (
            "Before training, both parties learned which identifiers they share (matching): who is a customer of both is known "
            "to both. What follows is the training on those rows.\n\n"
            + aligned.training_statement(agreement.study, self.columns(agreement), agreement.sha256)
        )

    def first_follows(self, agreement: Agreement) -> tuple[str, ...]:
        return ("Both parties know which of their people the other has too, from now on and whatever becomes of the model.",)

    def exposure(self, agreement: Agreement) -> Exposure:
        """Classifications, and whom the parties share."""
        return replace(super().exposure(agreement), matches=True, overlap=joined.params_of(agreement.study).min_overlap)

    def opens(self, agreement: Agreement) -> list[str]:
        return ["which identifiers the parties share, to both"]

    def sizes(self, agreement: Agreement) -> dict[str, Any]:
        bounds = joined.params_of(agreement.study).bounds
        return {"identifiers_padded_to": [f"{name}: {bound}" for name, bound in bounds.items()]}


SCHEME = MatchedScheme()
