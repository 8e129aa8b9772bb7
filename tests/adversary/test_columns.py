"""The protocols for columns against any seat that deviates. See columns.py for what may happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from adversary.columns import ARENAS, LARGE, PAIR, ColumnArena, Data, argmax
from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, receive
from blindbayes.protocols.shared_inference.messages import ArgmaxGarbled
from blindbayes_papers.huai2015.noisy_histograms.messages import HistogramsReleased


@pytest.mark.parametrize("name", ARENAS)
def test_no_changed_message_gets_through_frames_another_or_tells_by_failing(name: str) -> None:
    arena, every = ARENAS[name]
    assert arena.findings(every=every) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ARENAS | LARGE)
def test_no_changed_message_gets_through_frames_another_or_tells_by_failing_whole(name: str) -> None:
    arena, _ = (ARENAS | LARGE)[name]
    assert arena.findings() == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_of_three_parties_that_deviate_do_not_frame_the_third() -> None:
    arena = argmax(3, PAIR, rate=0.3)
    assert arena.findings(every=3, coalitions=[("class", "second"), PAIR]) == []


def test_references_that_cannot_be_read_end_training_with_the_name_of_who_garbled_them() -> None:
    """Else the share file keeps no class for them, and fails later, with an error of one's own data."""

    def spoil(sender: str, to: str, message: Any) -> Any:
        is_garbled = isinstance(message, ArgmaxGarbled)
        return msgspec.structs.replace(message, tags=np.zeros_like(message.tags)) if is_garbled else message

    who, error = argmax(3, rate=0.3).fight(("class",), spoil).errors[0]
    assert (who, type(error), error.party) == ("attributes", IntegrityError, "class")


def test_the_search_finds_a_changed_table_where_no_audit_looks() -> None:
    """Power: what audits find in one run and miss in another is none, what they never find is."""
    bare, audited = argmax(3), argmax(3, rate=0.3)
    unaudited = ColumnArena.of(bare.name, bare.seats, bare.players, audited.own)
    for how in ("zeroed", "largest"):
        title, change = next(each for each in bare.deviations(("class",)) if each[0].endswith(f"EntriesMasked.entries {how}"))
        assert any("a wrong result" in words for words in unaudited.judge_change(title, ("class",), change))
        assert audited.judge_change(title, ("class",), change) == []


def test_the_search_finds_what_a_missing_mark_lets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    looks_up = "blindbayes.protocols.shared_inference.query.receive_marked"
    monkeypatch.setattr(looks_up, lambda sender, kind, session, index: receive(sender, kind))
    assert any("earlier run" in each or "mark" in each for each in argmax(2).findings())


def test_the_search_finds_a_failure_that_says_what_the_honest_brought() -> None:
    """Power: whoever refuses zeros only if its own number is odd answers a question; wrong results count too."""

    def players(runs: Mapping[str, Run], coins: Coins, data: Data) -> dict[str, Role[Any]]:
        def asks() -> Role[None]:
            yield Send("answers", HistogramsReleased("", np.ones(2, dtype=np.uint64)))

        def answers() -> Role[int]:
            told = yield from receive("asks", HistogramsReleased)
            if not told.counts.any() and data("answers").bits(64) % 2:
                raise PeerProtocolError("no zeros", party="asks")
            return len(told.counts)

        return {"asks": asks(), "answers": answers()}

    found = ColumnArena.of("toy", ("asks", "answers"), players, own=()).findings()
    assert [words for words in found if "says what it brought" in words]
    assert [words for words in found if "a wrong result" in words]
