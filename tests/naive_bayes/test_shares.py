"""Share files: whole or refused, private, destroyed for good; the query budget counts across processes."""

import multiprocessing
import os

import numpy as np
import pytest

from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from support.two_party import coins


def share(queries=None):
    table = coins("table").words(12).reshape(1, 3, 4, 1)
    return ModelShare(
        "0" * 64, "hospital", {"rows": 10}, {"insurer": {"v": table}}, {"insurer": coins("s").words(6)}, {"a": [1]}, queries
    )


def test_a_share_survives_the_file(tmp_path):
    original = share(5)
    original.charge(2)
    original.save(tmp_path / "h.share")
    found = ModelShare.load(tmp_path / "h.share")
    assert found.party == "hospital"
    assert found.public == {"rows": 10}
    assert found.local == {"a": [1]}
    assert found.queries == 5
    assert found.spent == 2
    assert np.array_equal(found.tables["insurer"]["v"], original.tables["insurer"]["v"])
    assert np.array_equal(found.sums["insurer"], original.sums["insurer"])


def test_only_the_owner_may_read_it(tmp_path):
    path = tmp_path / "h.share"
    share().save(path)
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod"):
        ModelShare.load(path)


def test_a_share_is_never_overwritten(tmp_path):
    path = tmp_path / "h.share"
    share().save(path)
    before = path.read_bytes()
    with pytest.raises(ConfigError):
        share().save(path)
    assert path.read_bytes() == before


def test_any_damage_is_noticed(tmp_path):
    path = tmp_path / "h.share"
    share().save(path)
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DataError):
            ModelShare.load(path)
    for cut in (0, 10, 40, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError):
            ModelShare.load(path)


def test_destroy_erases_memory_and_disk(tmp_path):
    path = tmp_path / "h.share"
    mine = share(5)
    table = mine.tables["insurer"]["v"]
    mine.save(path)
    mine.charge(1)
    other = ModelShare.load(path)
    mine.destroy()
    assert not table.any()
    assert list(tmp_path.iterdir()) == []
    for gone in (mine, other):
        with pytest.raises(ConfigError, match="destroyed"):
            gone.charge(1)
    with pytest.raises(ConfigError):
        ModelShare.load(path)


def test_the_budget_refuses_what_would_pass_it_and_charges_nothing_then():
    mine = share(5)
    mine.charge(3)
    with pytest.raises(PrivacyError, match="budget"):
        mine.charge(3)
    assert mine.spent == 3
    mine.charge(2)
    with pytest.raises(PrivacyError):
        mine.charge(1)
    with pytest.raises(ConfigError):
        mine.charge(0)


def _racer(path, wins):
    found = ModelShare.load(path)
    won = 0
    for _ in range(20):
        try:
            found.charge(1)
            won += 1
        except PrivacyError:
            break
    wins.put(won)


def test_two_processes_cannot_spend_the_same_budget(tmp_path):
    path = tmp_path / "h.share"
    share(25).save(path)
    context = multiprocessing.get_context("fork")
    wins = context.SimpleQueue()
    racers = [context.Process(target=_racer, args=(path, wins)) for _ in range(2)]
    for racer in racers:
        racer.start()
    total = wins.get() + wins.get()
    for racer in racers:
        racer.join()
    assert total == 25
    assert ModelShare.load(path).spent == 25


def test_a_damaged_record_of_charges_fails_closed(tmp_path):
    path = tmp_path / "h.share"
    mine = share(25)
    mine.save(path)
    mine.charge(1)
    record = path.with_name("h.share.spent")
    record.write_text("1\nx\n")
    with pytest.raises(DataError):
        mine.charge(1)


def test_nothing_of_a_share_stands_in_its_repr(tmp_path):
    mine = share()
    text = repr(mine)
    assert str(int(mine.sums["insurer"][0])) not in text
    assert os.fspath(tmp_path) not in text


def test_a_batch_that_was_paid_resumes_for_nothing_and_does_not_grow(tmp_path):
    mine = share(5)
    mine.save(tmp_path / "h.share")
    mine.charge(2, "run")
    mine.charge(2, "run")
    assert mine.spent == 2
    for refuse in (mine.charge, mine.require_budget):
        with pytest.raises(PrivacyError, match="for fewer instances"):
            refuse(3, "run")
    assert mine.spent == 2


def test_a_record_of_charges_that_is_older_than_the_sites_log_is_not_believed(tmp_path):
    mine = share(5)
    mine.save(tmp_path / "a.share")
    budget = 5
    with pytest.raises(PrivacyError):
        mine.charge(1, known=budget)
    mine.charge(1, known=budget - 1)
