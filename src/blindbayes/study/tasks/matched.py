"""The task of joined_sums with reveal = "matching": two parties learn whom they share, and train on the rows that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.data.identifiers import rows_at
from blindbayes.disclosure.value import Disclosure, Overlap
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.private_join.joined import require_reachable
from blindbayes.protocols.private_join.sums.inputs import Entries, merge
from blindbayes.protocols.shared_training.columns import ColumnsSetup, Trained
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study, join_study, learner_of
from blindbayes.study.tasks import joined
from blindbayes.study.tasks.aligned import AlignedTask, columns_for
from blindbayes.study.tasks.columns import keyed_digest, require_bound, require_held, require_learner
from blindbayes.study.tasks.shared import ShareTask
from blindbayes.study.tasks.task import LocalSite


class MatchedTask(ShareTask[Trained]):
    """Training after a matching that both parties learn; what follows is as for rows that line up."""

    name = joined.JoinedTask.name
    description = joined.JoinedTask.description
    params = joined.JoinedSumsParams
    aligned = False
    protocols = ("transfer", "matching", "class_sums", "shared_model")
    supports = joined.JoinedTask.supports
    leaving = joined.JoinedTask.leaving
    messages = (joined.JoinedTask.messages[0], *AlignedTask.messages)
    setup: ColumnsSetup

    @classmethod
    def check(cls, study: Study) -> None:
        super().check(study)
        params = joined.params_of(study)
        if join_study(study).duplicates == "join":
            raise ConfigError("rows that are to line up need duplicates = 'first' or 'reject'")
        if params.join == "left" or params.overlap_epsilon is not None:
            raise ConfigError("reveal = 'matching' takes neither overlap_epsilon nor join: the overlap is known then")

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        return joined.JoinedTask.agree_locally(study, sites)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        holdings, study, params = agreement.holdings, self.study, joined.params_of(agreement.study)
        if len(agreement.names) != 2:
            raise ConfigError("the matching is revealed between two parties; with more, leave the option reveal out")
        joined.require_bounds(params.bounds, agreement.names)
        require_reachable(params.min_overlap, params.bounds.values())
        require_learner(learner_of(study), agreement.names)
        rows = min(*params.bounds.values(), study.codebook.max_rows)  # at most the smaller bound matches
        self.setup = columns_for(study, rows, agreement.owners, holdings.labelled)
        self.setup.plan  # noqa: B018 - raises unless scores fit and have a minimum variance
        self._party = ""
        self._source: ColumnSource | None = None
        self._entries: Entries | None = None
        self._training: AlignedTask | None = None  # on the rows that matched

    def overlap_partners(self, party: str) -> tuple[str, ...]:
        """Return the other party: it learns more than a bit, and so no more often."""
        return tuple(name for name in self.agreement.names if name != party)

    # -- one party, one run --------------------------------------------------------------------------------------------

    def bring(self, party: str, source: ColumnSource) -> None:
        study = join_study(self.study)
        require_held(self.setup, party, source)
        digests = joined.digests_of(study, self.agreement.sha256, source)  # reads the table, once
        entries = merge(digests, np.arange(source.rows, dtype=np.uint64)[:, None], study.duplicates, 1)
        require_bound(party, len(entries), joined.params_of(study).bounds[party])
        self._party, self._entries = party, entries
        self._source = replace(source, lenient=study.privacy.epsilon is not None)  # with noise no row is an error

    def _read_rows(self) -> tuple[ColumnSource, Entries]:
        if self._source is None or self._entries is None:
            raise LocalProtocolError("the rows were not read")
        return self._source, self._entries

    def input_digest(self, key: bytes) -> bytes:
        source, entries = self._read_rows()
        arrays: list[Any] = [entries.items, entries.words]
        for block in source.blocks():
            arrays += [*block.columns.values(), *([] if block.labels is None else [block.labels])]
        return keyed_digest(key, self.setup.codebook.canonical(), arrays)

    def role(self, name: str, run: Run, coins: Coins) -> Role[Trained]:
        """Match, then train on the rows that matched, whose number both know."""
        (source, entries), params, study = self._read_rows(), joined.params_of(self.study), self.study
        first, second = self.setup.owners
        sizes = matching.MatchingSetup(params.bounds[first], params.bounds[second], study.codebook.sha256.encode())
        own = coins.derive("matching")
        if self._party == first:
            ot_sender = yield from transfer.ot_sender(run, second, own)
            matches = yield from matching.asker(run, second, sizes, entries.items, ot_sender, own)
        else:
            ot_receiver = yield from transfer.ot_receiver(run, first, own)
            matches = yield from matching.owner(run, first, sizes, entries.items, ot_receiver, own)
        if not len(matches):
            raise DataError("the parties share no identifier")
        if len(matches) < params.min_overlap:  # a model of few people reveals their classes, and a party chooses whom it brings
            raise PrivacyError(
                f"fewer than {params.min_overlap} identifiers match, the study's min_overlap; nothing was trained"
            )
        # Entries stand in the order of their digests at both parties, so what matches lines up.
        places = entries.words[matches, 0].astype(np.int64)
        holdings = msgspec.structs.replace(self.agreement.holdings, n_rows=len(places))
        training = AlignedTask(replace(self.agreement, columns=holdings))
        training.bring(self._party, rows_at(source, places, study.codebook))
        self._training = training
        return (yield from training.role(name, run, coins.derive("training")))

    def share(self, trained: Trained) -> ModelShare:
        if self._training is None:
            raise LocalProtocolError("the parties were not matched")
        return self._training.share(trained)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        overlap = Overlap(joined.params_of(self.study).min_overlap, matches_to=self.agreement.names)
        return replace(super().disclosure, overlap=overlap)

    def outputs(self) -> list[str]:
        return ["which identifiers the parties share, to both"]

    def conclusions(self) -> tuple[str, ...]:
        known = "Both parties know which of their people the other has too, from now on and whatever becomes of the model."
        return (known, *super().conclusions())

    def sizes(self) -> dict[str, Json]:
        bounds = joined.params_of(self.study).bounds
        return {"identifiers_padded_to": [f"{name}: {bound}" for name, bound in bounds.items()]}

    def security(self) -> tuple[str, str]:
        return AlignedTask.security(self._aligned())

    def _aligned(self) -> AlignedTask:
        """Return the training on as many rows as can match."""
        holdings = msgspec.structs.replace(self.agreement.holdings, n_rows=self.setup.rows)
        return AlignedTask(replace(self.agreement, columns=holdings))

    def statement(self, overlaps: Mapping[str, int]) -> str:
        return (
            "Before training, both parties learned which identifiers they share (matching): who is a customer of both is known "
            "to both. What follows is the training on those rows.\n\n" + self._aligned().statement(overlaps)
        )
