"""Noise in the shares and audited look-ups through agents: both ledgers pay, an edited share is caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes import Codebook
from blindbayes.agent.approvals.summary import require_study
from blindbayes.cli.commands.study_init import make_study
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.errors import IntegrityError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.study.file import Limits, Privacy
from blindbayes.testing.loopback import open_policy
from support.column_sites import Split, classes, errors, office_of, predict, shares, small, train, trained
from support.sites import bounded

BOOK = Codebook(
    "class",
    ("ill", "well"),
    (
        Numeric("age", 0, 120),
        Categorical("colour", ("red", "green", "blue")),
        Numeric("weight", 20, 200),
        Categorical("smokes", ("no", "yes")),
    ),
    variance_floor=1.0,
)


class Declared(Split):
    @property
    def book(self) -> Codebook:
        return BOOK


def declared(rows: int = 400) -> Split:
    frame = small(rows).round(0)
    return Declared(frame, "class", {"hospital": ("age", "colour"), "insurer": ("weight", "smokes")}, ("hospital",))


def test_noise_in_shares_is_paid_by_both_ledgers_once(tmp_path: Path) -> None:
    split = declared()

    async def test() -> None:
        guards = {"privacy": Privacy(epsilon=2.0), "limits": Limits(min_cell=3)}
        async with trained(tmp_path, split, **guards) as (
            office,
            study,
            model,
        ):
            for site in office.net.sites.values():
                assert site.home.ledger.balance().spent_epsilon == 2.0
            asked = split.ask(tmp_path, split.frame[:30])
            runs = await predict(office, study, model, asked)
            assert errors(runs) == {"hospital": None, "insurer": None}
            found = classes(office.net, runs["hospital"].run_id, "hospital")["class"]
            assert (found == split.frame["class"][:30]).mean() > 0.6
            for site in office.net.sites.values():
                assert site.home.ledger.balance().spent_epsilon == 2.0
            statement = (office.net.sites["insurer"].home.folder / "releases" / model / "statement.md").read_text()
            assert "every answer that this model ever gives" in statement
            kept = shares(office.net, model)
            assert all(share.sums == {} for share in kept.values())

    bounded(test)


def test_an_edited_share_is_caught_between_sites(tmp_path: Path) -> None:
    split = declared()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            options = {"queries": 10_000, "audit_rate": 0.3}
            study = split.study(office.net, privacy=Privacy(epsilon=3.0), options=options)
            model = await train(office, study)
            kept = shares(office.net, model)
            assert set(kept["insurer"].references) == {"hospital"}
            assert kept["hospital"].references == {}  # nothing is looked up for the class holder
            asked = split.ask(tmp_path, split.frame[:40])
            assert errors(await predict(office, study, model, asked)) == {"hospital": None, "insurer": None}
            path = office.net.sites["hospital"].home.folder / "shares" / f"{model}.share"
            edit(path)
            runs = await predict(office, study, model, asked, "tuesday")
            assert isinstance(runs["insurer"].error, IntegrityError)
            assert runs["insurer"].error.party == "hospital"
            assert not (office.net.sites["insurer"].home.folder / "releases" / runs["insurer"].run_id).exists()

    bounded(test)


def edit(path: Path) -> None:
    """Whoever has the site's folder changes a table of its share."""
    share = ModelShare.load(path)
    table = share.tables["insurer"]["smokes"]
    table[0, 1:, :] = lm.add(
        table[0, 1:, :], np.full_like(table[0, 1:, :], 1 << 30) * np.arange(1, 3, dtype=np.uint64)[:, None, None]
    )
    path.unlink()
    share.path = None
    share.save(path)


def test_the_command_makes_a_study_with_noise_in_shares_where_one_party_knows_the_class(tmp_path: Path) -> None:
    split = declared()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            cards = [site.identity.card for site in office.net.sites.values()]
            holds = tuple((name, ",".join(held)) for name, held in split.holds.items())
            said: dict[str, Any] = {"holds": holds, "columns__labelled": ("hospital",), "columns__n_rows": 400}
            said |= {"options__queries": 100, "options__audit_rate": 0.1, "limits__min_cell": 4}
            study = make_study("T", BOOK, cards, {**said, "privacy__epsilon": 1.0, "privacy__delta": 1e-6})
            assert (study.protocol, study.privacy.epsilon, study.privacy.delta) == ("class_sums", 1.0, 1e-6)
            assert (study.study.limits.min_cell, study.options["audit_rate"]) == (4, 0.1)
            facts = study.task.facts()
            assert (facts["noise"], facts["min_cell"]) == ("of every party, in the shares", 4)
            both = {"holds": holds, "columns__labelled": ("hospital", "insurer"), "privacy__epsilon": 1.0}
            binned = BOOK.with_features(
                msgspec.structs.replace(feature, bins=4) if isinstance(feature, Numeric) else feature
                for feature in BOOK.features
            )
            assert make_study("T", binned, cards, {**both, "protocol": "noisy_histograms"}).protocol == "noisy_histograms"

    bounded(test)


def test_a_policy_may_ask_for_noise_and_for_audits(tmp_path: Path) -> None:
    split = declared()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            exact = split.study(office.net)
            with pytest.raises(PrivacyError, match="noise_in_shares"):
                require_study(open_policy(noise_in_shares=True), exact)
            with pytest.raises(PrivacyError, match="audit_rate of at least"):
                require_study(open_policy(min_audit_rate=0.1, min_cell=0), exact)
            with pytest.raises(PrivacyError, match=r"or for limits\.min_cell of at least 10"):
                require_study(open_policy(), exact)
            for guarded in ({"limits": Limits(min_cell=10)}, {"privacy": Privacy(epsilon=1.0)}):
                require_study(open_policy(), split.study(office.net, **guarded))
            with pytest.raises(PrivacyError, match=r"min_cell of at least 11"):  # the strictest site decides
                require_study(open_policy(min_cell=11), split.study(office.net, limits=Limits(min_cell=10)))
            dear = split.study(office.net, privacy=Privacy(epsilon=20.0), limits=Limits(min_cell=10))
            with pytest.raises(PrivacyError, match="at most 10"):
                require_study(open_policy(), dear)

    bounded(test)
