"""Keys of pairs: one place makes them, bound to everything, and refuses what is no key."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest
from nacl import bindings

import blindbayes
import blindbayes_papers
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.signatures import SigningKey
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.core import Run

ROOT = Path(blindbayes.__file__).parent
PAPERS = Path(blindbayes_papers.__file__).parent
PRIME = 2**255 - 19
KEYS = {name: AgreementKey.generate(Coins.seeded(bytes([at]) * 32)) for at, name in enumerate("abcd")}


def encoded(number: int) -> bytes:
    return number.to_bytes(32, "little")


def made(
    me: str, other: str, *, show: str = "", study: str = "s", run: str = "r", protocol: str = "p", purpose: str = "x"
) -> bytes:
    """The key that `me` makes with `other`, whose public key is said to be that of `show`."""
    scope = pair_keys.scope_of(Run(study, run, ("a", "b", "c", "d"), me), protocol)
    return pair_keys.pair_key(KEYS[me], KEYS[show or other].public, me=me, other=other, scope=scope, purpose=purpose)


def test_both_make_the_same_key_and_no_other_pair_study_run_protocol_or_purpose_does() -> None:
    assert all(made(one, other) == made(other, one) for one, other in itertools.combinations("abcd", 2))
    pairs = [made(one, other) for one, other in itertools.combinations("abcd", 2)]
    elsewhere = [made("a", "b", study="t"), made("a", "b", run="t"), made("a", "b", protocol="t"), made("a", "b", purpose="t")]
    shown = [made("a", "b", show="c"), made("a", "c", show="b"), made("a", "d", show="b")]
    assert len({*pairs, *elsewhere, *shown}) == len(pairs) + len(elsewhere) + len(shown)


def test_a_copied_key_under_another_name_gives_another_key() -> None:
    """What the masks of a victim cancelled by: the copy's key was the same as the original's."""
    assert made("b", "a") != made("b", "d", show="a")


def test_directions_and_contexts_of_a_channel_differ() -> None:
    channel = made("a", "b")
    found = [
        pair_keys.directed_key(channel, "x", "a", "b"),
        pair_keys.directed_key(channel, "x", "b", "a"),
        pair_keys.directed_key(channel, "y", "a", "b"),
        pair_keys.directed_key(channel, "x", "a", "b", b"c"),
        pair_keys.directed_key(channel, "x", "ab", ""),
        pair_keys.shared_key(channel, "x"),
        pair_keys.shared_key(channel, "x", b"c"),
        channel,
    ]
    assert len(set(found)) == len(found)


SMALL = sorted(int.from_bytes(point, "little") for point in pair_keys.SMALL_ORDER)
IMPROPER = {
    "short": bytes(31),
    "long": bytes(33),
    "empty": b"",
    **{f"small order {number % 1000}": encoded(number) for number in SMALL},
    **{f"alias {number % 1000}": encoded(number + PRIME) for number in SMALL if number < 19},
    **{f"unused bit {number % 1000}": encoded(number | 1 << 255) for number in SMALL},
    "another encoding of 9": encoded(9 + PRIME),
    "a proper key with the unused bit": encoded(int.from_bytes(KEYS["a"].public, "little") | 1 << 255),
}


@pytest.mark.parametrize("case", IMPROPER)
def test_what_is_no_key_is_refused_with_its_senders_name(case: str) -> None:
    assert not pair_keys.is_proper(IMPROPER[case])
    with pytest.raises(PeerProtocolError) as caught:
        pair_keys.require_keys([("a", KEYS["a"].public), ("b", IMPROPER[case])])
    assert caught.value.party == "b"
    with pytest.raises(PeerProtocolError) as caught:
        pair_keys.require_keys([("b", IMPROPER[case])], blame="server")
    assert caught.value.party == "server"


def test_the_list_of_small_orders_is_whole() -> None:
    """Each gives nothing but zero with any key; and no other encoding near the ends does."""
    for number in {*SMALL, *range(64), *range(PRIME - 64, PRIME)}:
        try:
            bindings.crypto_scalarmult(bytes(range(32)), encoded(number))
            is_small = False
        except RuntimeError:
            is_small = True
        assert is_small == (encoded(number) in pair_keys.SMALL_ORDER), number


def test_equal_keys_and_ones_own_are_refused() -> None:
    a, b = KEYS["a"].public, KEYS["b"].public
    pair_keys.require_keys([("a", a), ("b", b)], own=(KEYS["c"].public,))
    for found, own in (([("a", a), ("b", a)], ()), ([("a", a), ("b", b)], (b,)), ([("b", b), ("b", b)], ())):
        with pytest.raises(PeerProtocolError) as caught:
            pair_keys.require_keys(found, own=own)
        assert caught.value.party == "b"


def test_a_signed_key_serves_one_seat_run_study_and_protocol() -> None:
    signer = SigningKey.generate(Coins.seeded(bytes(32)))
    identities = {"a": signer.public, "server": signer.public}  # one site, two seats
    run = Run("s", "r", ("a", "server"), "a", identities, signer)
    public = KEYS["a"].public
    signature = pair_keys.sign_keys(run, pair_keys.scope_of(run, "p"), public)
    pair_keys.verify_keys(run, pair_keys.scope_of(run, "p"), "a", (public,), signature, blame="a")
    elsewhere = [
        (Run("s", "r", ("a", "server"), "a", identities), "p", "server"),
        (Run("s", "q", ("a", "server"), "a", identities), "p", "a"),
        (Run("t", "r", ("a", "server"), "a", identities), "p", "a"),
        (Run("s", "r", ("a", "server"), "a", identities), "q", "a"),
    ]
    for other, protocol, name in elsewhere:
        with pytest.raises(IntegrityError):
            pair_keys.verify_keys(other, pair_keys.scope_of(other, protocol), name, (public,), signature, blame="a")


MAY_AGREE = {"protocols/pair_keys.py", "crypto/hybrid.py", "net/notices.py"}  # the second: sessions of the envelope
MAY_DERIVE = {
    "protocols/pair_keys.py",
    "protocols/secure_sum/keys.py",  # from a party's own secrets: its mask, a pad, and the commitments to them
    "protocols/azimian2022/chain_sum/chain_layout.py",  # from a public digest
}


def calls(path: Path, name: str) -> list[ast.Call]:
    tree = ast.parse(path.read_text("utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [c for c in found if name == (c.func.attr if isinstance(c.func, ast.Attribute) else getattr(c.func, "id", ""))]


def test_nobody_else_makes_a_key_of_a_pair() -> None:
    """`AgreementKey.agree` has one caller in the protocols (and the envelope of links); so has every derivation from it."""
    places = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    places |= {f"protocols/{path.relative_to(PAPERS).as_posix()}": path for path in PAPERS.rglob("*.py")}
    for place, path in sorted(places.items()):
        if not place.startswith("protocols/") and "AgreementKey" not in path.read_text("utf-8"):
            continue  # what it calls `agree` is something else
        agreed = [call for call in calls(path, "agree") if len(call.args) == 1]  # `transfer.agree` takes five
        agreed += calls(path, "agree_many") if not place.startswith("crypto/") else []
        assert not agreed or place in MAY_AGREE, place
        if place.startswith("protocols/"):
            assert not calls(path, "derive_key") or place in MAY_DERIVE, place
            assert not calls(path, "derive_many") or place == "protocols/pair_keys.py", place
            assert not calls(path, "crypto_scalarmult"), place
    seeds = {ast.unparse(call.args[0]) for call in calls(ROOT / "protocols/secure_sum/keys.py", "derive_key")}
    assert seeds == {"seed", "secret", "run_key"}
    chain = calls(PAPERS / "azimian2022/chain_sum/chain_layout.py", "derive_key")
    assert {ast.unparse(call.args[0]) for call in chain} == {"digest"}
