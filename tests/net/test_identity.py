"""A site's keys, card and pins."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from pathlib import Path

import pytest

from blindbayes.crypto.signatures import verify
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Card, Identity, pin, pinned, read_card, speak


def test_keys_come_back_as_they_were_made(tmp_path: Path) -> None:
    made = Identity.create(tmp_path, "north", address="127.0.0.1:9000")
    loaded = Identity.load(tmp_path)
    assert loaded.card == made.card
    assert loaded.tls_key == made.tls_key
    assert loaded.storage_key == made.storage_key
    verify(made.card.identity, b"payload", loaded.signing.sign(b"payload"))


def test_private_files_have_tight_modes_and_are_refused_when_they_do_not(tmp_path: Path) -> None:
    Identity.create(tmp_path, "north")
    for name in ("identity.key", "tls.key"):
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    os.chmod(tmp_path / "keys" / "identity.key", 0o640)
    with pytest.raises(ConfigError, match="read by others"):
        Identity.load(tmp_path)


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    made = Identity.create(tmp_path, "north")
    with pytest.raises(ConfigError, match="exists already"):
        Identity.create(tmp_path, "north")
    assert Identity.load(tmp_path).card == made.card


def test_a_passphrase_locks_both_keys(tmp_path: Path) -> None:
    made = Identity.create(tmp_path, "north", passphrase="correct horse")
    assert made.tls_key not in (tmp_path / "keys" / "tls.key").read_bytes()
    with pytest.raises(ConfigError, match="have a passphrase"):
        Identity.load(tmp_path)
    with pytest.raises(ConfigError, match="does not open"):
        Identity.load(tmp_path, passphrase="wrong horse")
    assert Identity.load(tmp_path, passphrase="correct horse").tls_key == made.tls_key


def test_a_card_survives_its_file_and_any_change_is_refused() -> None:
    card = Identity.generate("north", address="north.example:9000").card
    assert Card.from_toml(card.to_toml()) == card
    for old, new in (
        ('name = "north"', 'name = "south"'),
        ("north.example:9000", "evil.example:9000"),
        (card.identity.hex(), Identity.generate("north").card.identity.hex()),
        (card.signature.hex(), "00" * 64),
    ):
        with pytest.raises(ConfigError, match="not signed"):
            Card.from_toml(card.to_toml().replace(old, new))
    for text in ("", "name = 3", "[", card.to_toml() + 'extra = "x"\n', card.to_toml().replace("BEGIN CERT", "BEGIN DIRT")):
        with pytest.raises(ConfigError):
            Card.from_toml(text)


def test_a_card_can_be_mailed_and_pasted() -> None:
    """Mail breaks lines of more than 998 characters, and clients wrap sooner; blanks at the ends of lines get lost or added."""
    card = Identity.generate("north", address="north.example:9000").card
    text = card.to_toml()
    assert max(map(len, text.splitlines())) <= 160
    assert text.isascii()
    assert len(text) < 8192
    assert Card.from_toml(text.replace("\n", "\r\n")) == card
    keys = text[text.index("agreement") : text.index("signature")]
    assert Card.from_toml(text.replace(keys, keys.replace("\n", " \n  "))) == card


def test_every_key_on_a_card_is_covered_by_its_words_and_by_the_hash_in_a_study() -> None:
    card, other = Identity.generate("north").card, Identity.generate("north").card
    for field in ("identity", "agreement", "ml_dsa", "certificate"):
        assert dataclasses.replace(card, **{field: getattr(other, field)}).words != card.words
    for field in ("agreement", "ml_dsa"):
        assert dataclasses.replace(card, **{field: getattr(other, field)}).key != card.key


def test_a_card_with_a_malformed_key_is_refused_though_its_site_signed_it() -> None:
    identity = Identity.generate("north")
    good = identity.card.agreement
    for fields in (
        {"agreement": good[:-1]},
        {"agreement": good[:32]},
        {"agreement": good[:32] + b"\xff" * 1184},  # coefficients that are not reduced
        {"ml_dsa": identity.card.ml_dsa[:-1]},
        {"ml_dsa": b""},
    ):
        unsigned = dataclasses.replace(identity.card, **fields)
        card = dataclasses.replace(unsigned, signature=identity.signing.sign(unsigned._signed_bytes()))
        with pytest.raises(ConfigError, match="not a site's card"):
            Card.from_toml(card.to_toml())


def test_a_card_of_an_earlier_version_says_what_to_do_and_its_site_renews_it(tmp_path: Path) -> None:
    made = Identity.create(tmp_path, "north", address="north.example:9000")
    text = made.card.to_toml()
    kept = (
        text[: text.index("agreement")]
        + f'agreement = "{made.agreement.curve.public.hex()}"\n'
        + text[text.index("signature") :]
    )
    (tmp_path / "card.toml").write_text(kept)
    for read in (lambda: Identity.load(tmp_path), lambda: Card.from_toml(kept)):
        with pytest.raises(ConfigError, match=r"card of north is of an earlier version.*site rotate.*--replace"):
            read()
    renewed = Identity.rotate(tmp_path, passphrase=None, new_passphrase=None)
    assert (renewed.card.identity, renewed.card.key) == (made.card.identity, made.card.key)
    assert renewed.card.address == "north.example:9000"
    assert Identity.load(tmp_path).card == renewed.card == read_card(tmp_path / "card.toml")
    peer = tmp_path / "peer"
    pin(peer, made.card)
    (peer / "peers" / "north.toml").write_text(kept)
    pin(peer, renewed.card, replace=True)
    assert pinned(peer) == {"north": renewed.card}


def test_fingerprint_words_tell_two_sites_apart_and_ignore_the_address() -> None:
    identity = Identity.generate("north")
    assert identity.with_address("else:1").card.words == identity.card.words
    assert Identity.generate("north").card.words != identity.card.words
    assert len(identity.card.words.split("-")) == 8
    assert speak(bytes.fromhex("7f000001")) == "lusab-babad"  # the published example of proquints: 127.0.0.1


def test_a_pin_is_not_replaced_by_the_way(tmp_path: Path) -> None:
    first, second = Identity.generate("south").card, Identity.generate("south").card
    pin(tmp_path, first)
    pin(tmp_path, first)
    with pytest.raises(ConfigError, match=r"pinned already.*--replace"):
        pin(tmp_path, second)
    pin(tmp_path, second, replace=True)
    assert pinned(tmp_path) == {"south": second}


def test_a_renamed_pin_is_refused(tmp_path: Path) -> None:
    pin(tmp_path, Identity.generate("south").card)
    (tmp_path / "peers" / "south.toml").rename(tmp_path / "peers" / "west.toml")
    with pytest.raises(ConfigError, match="is the card of south"):
        pinned(tmp_path)


def test_a_card_that_does_not_fit_the_keys_is_refused(tmp_path: Path) -> None:
    Identity.create(tmp_path / "a", "north")
    other = Identity.create(tmp_path / "b", "north")
    (tmp_path / "a" / "card.toml").write_text(other.card.to_toml())
    with pytest.raises(ConfigError, match="does not belong"):
        Identity.load(tmp_path / "a")
    assert read_card(tmp_path / "a" / "card.toml") == other.card


@pytest.mark.parametrize("name", ["", "North", "no/rth", "../x", "a" * 41, "1a", "a b"])
def test_names_are_file_names_everywhere(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        Identity.generate(name)


def test_damaged_key_files_end_in_an_error_that_names_what_to_do(tmp_path: Path) -> None:
    Identity.create(tmp_path, "north")
    for name in ("tls.key", "identity.key"):
        path = tmp_path / "keys" / name
        whole = path.read_bytes()
        damages = [bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :]) for at in range(len(whole))]
        for damaged in [*damages, b"", whole[:-20], bytes(len(whole))]:
            path.write_bytes(damaged)
            with contextlib.suppress(ConfigError):  # a flipped bit may leave the same key, or a white space
                Identity.load(tmp_path)
        path.write_bytes(whole)
    Identity.load(tmp_path)
