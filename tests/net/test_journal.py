"""The journal: what was committed comes back, what was altered is refused, and its end is final."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError
from blindbayes.net import journal as module
from blindbayes.net.identity import framed
from blindbayes.net.journal import Begun, Decided, Journal, code_version

KEY = bytes(range(32))
BEGUN = Begun("ab" * 32, "run-1", "north", b"s" * 32, b"d" * 32, code_version())


def fresh(folder: Path, quota: int = module.DEFAULT_QUOTA) -> Journal:
    return Journal.create(folder, BEGUN, KEY, quota=quota)


def filled(folder: Path) -> Journal:
    journal = fresh(folder)
    journal.receive("south", "KeysSent", b"canary-one")
    journal.receive("west", "KeysSent", b"canary-two")
    journal.decide(Decided(0, arrived=("south", "west")))
    journal.receive("south", "VectorSent", b"canary-three" * 1000)
    journal.commit()
    return journal


def test_everything_comes_back(tmp_path: Path) -> None:
    first = filled(tmp_path)
    first.close()
    again = Journal.open(tmp_path, "run-1", KEY)
    assert again.begun == BEGUN
    assert [again.take("south", 0), again.take("west", 0)] == [("KeysSent", b"canary-one"), ("KeysSent", b"canary-two")]
    assert again.take("south", 1) == ("VectorSent", b"canary-three" * 1000)
    assert again.take("south", 1) == ("VectorSent", b"canary-three" * 1000)  # now from disk
    assert again.decisions == {0: Decided(0, arrived=("south", "west"))}
    assert again.stream("south").digest == first.stream("south").digest
    assert again.stream("south").count == again.count("south") == 2
    assert again.is_held("west", 0, "KeysSent", b"canary-two")
    assert not again.is_held("west", 0, "KeysSent", b"canary-two.")
    assert not again.is_held("west", 0, "VectorSent", b"canary-two")
    again.receive("west", "VectorSent", b"more")
    again.commit()
    again.close()
    assert Journal.open(tmp_path, "run-1", KEY).take("west", 1) == ("VectorSent", b"more")


def test_nothing_stands_in_clear(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for path in tmp_path.iterdir():
        raw = path.read_bytes()
        assert b"canary" not in raw
        assert BEGUN.seed not in raw
        assert path.stat().st_mode & 0o077 == 0


def test_a_torn_last_record_is_cut_at_every_byte(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    before = journal.size
    journal.receive("west", "VectorSent", b"torn")
    journal.commit()
    after = journal.size
    journal.close()
    whole = (tmp_path / "journal").read_bytes()
    for size in range(before, after):
        (tmp_path / "journal").write_bytes(whole[:size])
        again = Journal.open(tmp_path, "run-1", KEY)
        assert again.count("west") == 1
        assert again.size == before
        again.close()
        assert (tmp_path / "journal").stat().st_size == before


@pytest.mark.parametrize("at", [0, 5, 20, 150, 290])
def test_an_altered_byte_before_the_last_record_is_refused(tmp_path: Path, at: int) -> None:
    filled(tmp_path).close()
    raw = bytearray((tmp_path / "journal").read_bytes())
    raw[at] ^= 1
    (tmp_path / "journal").write_bytes(bytes(raw))
    with pytest.raises((IntegrityError, ConfigError)):
        Journal.open(tmp_path, "run-1", KEY)


def test_a_flipped_byte_never_cuts_off_records_before_the_last(tmp_path: Path) -> None:
    journal = fresh(tmp_path)
    for index in range(7):
        before_last = journal.size
        journal.receive("south", "KeysSent", b"message %d" % index)
    journal.commit()
    journal.close()
    raw = (tmp_path / "journal").read_bytes()
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x80
        (tmp_path / "journal").write_bytes(damaged)
        try:
            again = Journal.open(tmp_path, "run-1", KEY)
        except IntegrityError:
            continue
        assert at >= before_last, "only the last record may count as torn"
        assert again.count("south") == 6
        again.close()


def test_records_cannot_be_left_out_or_moved(tmp_path: Path) -> None:
    journal = fresh(tmp_path)
    ends = [journal.size]
    for index in range(3):
        journal.receive("south", "KeysSent", b"same size %d" % index)
        ends.append(journal.size)
    journal.commit()
    journal.close()
    raw = (tmp_path / "journal").read_bytes()
    one, two, three = (raw[ends[i] : ends[i + 1]] for i in range(3))
    for order in ([two, three], [one, three, two, two], [two, one, three]):
        (tmp_path / "journal").write_bytes(raw[: ends[0]] + b"".join(order))
        with pytest.raises(IntegrityError):
            Journal.open(tmp_path, "run-1", KEY)


def test_another_site_key_or_run_does_not_open_it(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with pytest.raises(IntegrityError):
        Journal.open(tmp_path, "run-1", bytes(32))
    with pytest.raises(IntegrityError):
        Journal.open(tmp_path, "run-2", KEY)


def test_the_end_destroys_the_key(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    copy = (tmp_path / "journal").read_bytes()
    journal.erase()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "journal").write_bytes(copy)
    with pytest.raises(ConfigError, match="missing"):
        Journal.open(tmp_path, "run-1", KEY)


def test_a_run_begins_once(tmp_path: Path) -> None:
    fresh(tmp_path).close()
    with pytest.raises(ConfigError, match="exists already"):
        fresh(tmp_path)


def test_the_quota_holds(tmp_path: Path) -> None:
    journal = fresh(tmp_path, quota=100_000)
    while journal.size < 90_000:
        journal.receive("south", "KeysSent", bytes(5000))
    with pytest.raises(LocalProtocolError, match="quota"):
        journal.receive("south", "KeysSent", bytes(10_000))
    assert journal.size <= 100_000


@pytest.mark.parametrize("size", [4, module._LARGE])
def test_a_full_disk_is_a_typed_error_and_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    journal = filled(tmp_path)
    write = os.pwrite
    calls = []

    def half_then_full(handle: int, data: memoryview, at: int) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(handle, data[: 4096 if size > 4 else 7], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "pwrite", half_then_full)
    if size > 4:
        journal.receive("west", "VectorSent", b"lost" * (size // 4))  # waits for the commit
    with pytest.raises(LocalProtocolError, match="No space left"):
        journal.commit() if size > 4 else journal.receive("west", "VectorSent", b"lost")
    monkeypatch.undo()
    kept = [b"kept"] if size == 4 else [b"lost" * (size // 4), b"kept"]  # a large one waits for room
    assert journal.count("west") == len(kept)
    journal.receive("west", "VectorSent", b"kept")
    journal.commit()
    journal.close()
    again = Journal.open(tmp_path, "run-1", KEY)
    assert [again.take("west", at + 1)[1] for at in range(len(kept))] == kept


LARGE = [os.urandom(module._LARGE + extra) for extra in (0, 1, 4000, 70_000)]


def with_large(folder: Path) -> tuple[list[bytes], list[int]]:
    """A journal that was closed: what it was given, and where each record ends."""
    journal, told, ends = fresh(folder), [], []
    for at, payload in enumerate(LARGE):
        for each in (payload, b"%d" % at * (1 << at), bytes(4051 + at)):
            journal.receive("south", "VectorSent", each)
            told.append(each)
            ends.append(journal.size)
    journal.commit()
    journal.close()
    return told, ends


@pytest.mark.parametrize("direct", [True, False])
def test_large_and_small_messages_come_back_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if not direct:
        monkeypatch.delattr(module.os, "O_DIRECT", raising=False)
    told, _ = with_large(tmp_path)
    again = Journal.open(tmp_path, "run-1", KEY)
    assert [again.take("south", at)[1] for at in range(len(told))] == told
    again.receive("south", "VectorSent", LARGE[3])
    assert again.is_held("south", len(told), "VectorSent", LARGE[3])
    again._stored["south"][-1].payload = None
    assert again.take("south", len(told)) == ("VectorSent", LARGE[3])  # written now, to be read


def test_what_waits_for_a_commit_is_written_at_the_end_and_not_before(tmp_path: Path) -> None:
    journal = fresh(tmp_path)
    before = (tmp_path / "journal").stat().st_size
    journal.receive("south", "VectorSent", LARGE[0])
    journal.receive("south", "VectorSent", b"after")
    assert (tmp_path / "journal").stat().st_size == before
    journal.close()
    assert not journal._waiting  # a run that is remembered holds no pages
    assert Journal.open(tmp_path, "run-1", KEY).take("south", 1) == ("VectorSent", b"after")


def test_pages_serve_the_next_records_of_any_run_and_a_process_keeps_few(tmp_path: Path) -> None:
    pages = module._Pages()
    first = pages.take(4096 * 100)
    first[:] = bytes([1]) * len(first)
    pages.give(first.obj)
    again = pages.take(4096 * 70)
    assert again.obj is first.obj
    assert bytes(again[-4096:]) == bytes(4096)
    for room in [pages.take(1 << 23) for _ in range(9)]:
        pages.give(room.obj)
    assert pages._size == sum(map(len, pages._spare)) <= module._SPARE_BYTES


def test_a_large_record_that_is_torn_is_cut_and_one_that_is_altered_refused(tmp_path: Path) -> None:
    _, ends = with_large(tmp_path)
    path, whole = tmp_path / "journal", (tmp_path / "journal").read_bytes()
    begins = -(-ends[8] // 4096) * 4096  # of the last large one
    for size in (ends[8] + 1, begins + 3, begins + 20, begins + 5000, ends[9] - 4096):
        path.write_bytes(whole[:size])
        assert Journal.open(tmp_path, "run-1", KEY).count("south") == 9
        assert path.stat().st_size == ends[8]
    path.write_bytes(whole[:begins] + bytes(5000))  # what came later reached the disk first
    assert Journal.open(tmp_path, "run-1", KEY).count("south") == 9
    for at in (begins + 10, begins + 5000, ends[9] - 4096):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(IntegrityError):
            Journal.open(tmp_path, "run-1", KEY)


def test_memory_is_bounded_and_the_disk_serves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHE_BYTES", 1000)
    journal = fresh(tmp_path)
    for index in range(20):
        journal.receive("south", "KeysSent", bytes([index]) * 300)
    assert journal._cached <= 1000
    assert [journal.take("south", index)[1][0] for index in range(20)] == list(range(20))


def test_a_crash_before_the_first_record_leaves_nothing_behind(tmp_path: Path) -> None:
    assert Journal.find(tmp_path / "none", "run-1", KEY) is None
    folder = tmp_path / "seat"
    fresh(folder).close()
    for kept in (slice(0), slice(3), slice(-1)):
        whole = (folder / "journal").read_bytes()
        (folder / "journal").write_bytes(whole[kept])
        assert Journal.find(folder, "run-1", KEY) is None
        assert list(folder.iterdir()) == []
        fresh(folder).close()
    found = Journal.find(folder, "run-1", KEY)
    assert found is not None
    assert found.begun == BEGUN


def test_a_journal_without_its_key_is_never_begun_anew(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "key").unlink()
    with pytest.raises(IntegrityError):
        Journal.find(tmp_path, "run-1", KEY)


def test_what_is_sent_again_is_compared_whole_and_not_after_the_end(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.take("south", 1)  # from now on from disk
    assert journal.is_held("south", 1, "VectorSent", b"canary-three" * 1000)
    assert not journal.is_held("south", 1, "VectorSent", b"canary-three" * 999 + b"canary-thref")
    journal.erase()
    assert journal.is_held("south", 1, "VectorSent", b"anything")  # the release is written: it decides nothing any more


def test_contents_of_two_messages_cannot_be_swapped(tmp_path: Path) -> None:
    journal = fresh(tmp_path)
    ends = [journal.size]
    for index in range(3):
        journal.receive("south", "KeysSent", b"%d" % index * 1000)
        ends.append(journal.size)
    journal.close()
    raw = bytearray((tmp_path / "journal").read_bytes())
    one, two = (slice(ends[at + 1] - 1016, ends[at + 1]) for at in (0, 1))  # 1000 bytes and their tag
    raw[one], raw[two] = raw[two], raw[one]
    (tmp_path / "journal").write_bytes(bytes(raw))
    with pytest.raises(IntegrityError):
        Journal.open(tmp_path, "run-1", KEY)


def test_two_histories_have_two_digests() -> None:
    def told(*sent: tuple[str, bytes], run: str = "run-1", sender: str = "north") -> bytes:
        stream = module.SentDigest("ab" * 32, run, sender, "south")
        for step, payload in sent:
            stream.add(step, payload)
        return stream.digest

    one, two = ("KeysSent", b"one"), ("KeysSent", b"two")
    histories = [told(one, two), told(two, one), told(one), told(one, one), told(("Keys", b"Sentone"), two)]
    histories += [told(one, two, run="run-2"), told(one, two, sender="west")]
    assert len(set(histories)) == len(histories)


def _product(one: int, other: int) -> int:
    """In the field of AES-GCM, with its order of bits."""
    total = 0
    for at in range(127, -1, -1):
        total ^= other * (one >> at & 1)
        other = other >> 1 ^ (0xE1 << 120) * (other & 1)
    return total


@pytest.mark.parametrize("secret", [bytes(range(32)), b""])
def test_who_knows_what_everybody_knows_cannot_make_two_messages_of_one_digest(secret: bytes) -> None:
    # A third party whose words are added to a message could add a multiple of a public key's polynomial: the tag would stay.
    names = BEGUN.study.encode(), BEGUN.run_id.encode(), b"south", BEGUN.me.encode()
    public = [hashlib.sha256(framed(f"blindbayes sent v{version}".encode(), *names)).digest() for version in (2, 3)]
    sent = [module.SentDigest(BEGUN.study, BEGUN.run_id, "south", BEGUN.me, secret) for _ in range(4)]
    for stream, payload in zip(sent, [bytes(32), *map(_of_the_same_tag, (*public, bytes(32)))], strict=True):
        stream.add("KeysSent", payload)
    assert len({stream.digest for stream in sent}) == 4


def test_what_a_pair_shares_keys_what_it_compares(tmp_path: Path) -> None:
    journals = [
        Journal.create(tmp_path / name, BEGUN, KEY, secrets=secrets)
        for name, secrets in (("one", {"south": bytes(32)}), ("two", {"south": bytes(31) + b"1"}), ("none", {}))
    ]
    for journal in journals:
        journal.receive("south", "KeysSent", b"one")
    assert len({journal.stream("south").digest for journal in journals}) == 3
    journals[0].close()
    again = Journal.open(tmp_path / "one", "run-1", KEY, secrets={"south": bytes(32)})
    assert again.stream("south").digest == journals[0].stream("south").digest


def _of_the_same_tag(key: bytes) -> bytes:
    """Another message than 32 zeros that has their tag under this key."""
    block, step = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16)), 1 << 77
    return step.to_bytes(16, "big") + _product(step, int.from_bytes(block, "big")).to_bytes(16, "big")


def test_a_sender_that_makes_two_messages_of_one_digest_is_found_when_it_sends_the_second(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, BEGUN, KEY, secrets={"south": bytes(32)})
    stream = journal.stream("south")
    assert isinstance(stream._key, bytes)
    other, digests = _of_the_same_tag(stream._key), []
    for payload in (bytes(32), other):
        sent = module.SentDigest(BEGUN.study, BEGUN.run_id, "south", BEGUN.me, bytes(32))
        sent.add("KeysSent", payload)
        digests.append(sent.digest)
    assert digests[0] == digests[1]  # the two of a pair know the key
    journal.receive("south", "KeysSent", bytes(32))
    assert stream.digest == digests[0]
    assert journal.is_held("south", 0, "KeysSent", bytes(32))
    assert not journal.is_held("south", 0, "KeysSent", other)
