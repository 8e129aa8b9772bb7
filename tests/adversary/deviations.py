"""How a party deviates: every field of every message it sends changed in every way that we know, and chosen keys.

`systematic(arena, coalition)` yields (title, change) for all messages that the coalition sends in an honest run: each field
flipped, zeroed, cut, lengthened, reordered, repeated, out of range; to all receivers or to one only (equivocation); taken from
another run (replay) or from another receiver; left out; sent twice; and the end of all sending at each step.

`chosen_keys(arena, coalition)` yields changes of the public keys that belong to the coalition, in whatever message they are
shown: copies of anybody's key, the receiver's own, the identity and all small orders, other encodings.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace as arena_with
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from adversary.arena import Arena, Change, honest
from adversary.names import MASKED_KEYS

Deviation = tuple[str, Change]
SMALL = (
    0,
    1,
    2**255 - 20,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


# -- values ----------------------------------------------------------------------------------------------------------------


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of the same kind."""
    if isinstance(value, bool):
        yield "negated", not value
    elif isinstance(value, bytes):
        if value:
            yield "first bit flipped", bytes([value[0] ^ 1]) + value[1:]
            yield "last bit flipped", value[:-1] + bytes([value[-1] ^ 0x80])
            yield "zeroed", bytes(len(value))
            yield "cut", value[:-1]
            yield "empty", b""
        yield "longer", value + b"\1"
    elif isinstance(value, int):
        yield "one more", type(value)(value + 1)
        yield "zero", type(value)(0)
        yield "huge", type(value)(2**62)
    elif isinstance(value, str):
        yield "another name", value + "x"
    elif isinstance(value, np.ndarray):
        yield "zeroed", np.zeros_like(value)
        yield "largest", np.full_like(value, 2**64 - 1)
        yield "one more", value + np.uint64(1)
        yield "shorter", value[:-1]
        yield "longer", np.concatenate([value, value])
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            for how, other in variants(getattr(value, name)):
                yield f"{name} {how}", replace(value, **{name: other})
    elif isinstance(value, tuple):
        yield "longer", (*value, *value[:1])
        if value:
            yield "empty", ()
            yield "without the last", value[:-1]
            yield "without the first", value[1:]
            for how, other in variants(value[0]):
                yield f"first {how}", (other, *value[1:])
        if len(value) > 1:
            yield "reversed", value[::-1]
            yield "first for last", (*value[:-1], value[0])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    return bool(one == other)


# -- messages ---------------------------------------------------------------------------------------------------------------


def sent_by(arena: Arena, coalition: Collection[str]) -> list[tuple[str, str, Any]]:
    """What the coalition sends in an honest run: sender, receiver, message."""
    found: list[tuple[str, str, Any]] = []

    def note(sender: str, to: str, message: Any) -> Any:
        found.append((sender, to, message))
        return message

    arena.fight(coalition, note)
    return found


def systematic(arena: Arena, coalition: Collection[str]) -> Iterator[Deviation]:
    """See the module."""
    sent = sent_by(arena, coalition)
    earlier = sent_by(arena_with(arena, run_id="an earlier run", seed=bytes(31) + b"e"), coalition)
    groups: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for sender, to, message in sent:
        groups.setdefault((sender, type(message).__name__), []).append((to, message))
    for (sender, kind), messages in groups.items():
        receivers = list(dict.fromkeys(to for to, _ in messages))
        for only in (None, *receivers[:1]) if len(receivers) > 1 else (None,):
            where = f"{sender} to {only or 'all'}: {kind}"
            first = next(message for to, message in messages if only in (None, to))
            for field in first.__struct_fields__:
                for how, _ in variants(getattr(first, field)):
                    yield f"{where}.{field} {how}", _field(sender, kind, field, how, only)
            yield f"{where} left out", _message(sender, kind, only, lambda message: None)
            yield f"{where} sent twice", _message(sender, kind, only, lambda message: [message, message])
        old = [message for name, _, message in earlier if name == sender and type(message).__name__ == kind]
        if old:
            yield f"{sender}: {kind} of an earlier run", _message(sender, kind, None, lambda message, old=old: old[0])
        if len(receivers) > 1:
            other = messages[-1][1]
            yield (
                f"{sender}: {kind} of another receiver",
                _message(sender, kind, receivers[0], lambda message, other=other: other),
            )
        yield f"{sender} stops before {kind}", _stop(sender, kind)


def _message(sender: str, kind: str, only: str | None, make: Any) -> Change:
    def change(name: str, to: str, message: Any) -> Any:
        if name == sender and type(message).__name__ == kind and only in (None, to):
            return make(message)
        return message

    return change


def _field(sender: str, kind: str, field: str, how: str, only: str | None) -> Change:
    def make(message: Any) -> Any:
        other = dict(variants(getattr(message, field))).get(how, getattr(message, field))
        return message if _same(other, getattr(message, field)) else replace(message, **{field: other})

    return _message(sender, kind, only, make)


def _stop(sender: str, kind: str) -> Change:
    stopped = []

    def change(name: str, to: str, message: Any) -> Any:
        if name == sender and type(message).__name__ == kind:
            stopped.append(1)
        return None if name == sender and stopped else message

    return change


# -- keys -------------------------------------------------------------------------------------------------------------------


def key_slots(arena: Arena, to: str, message: Any) -> dict[tuple[str, str], bytes]:
    """The public keys that a message shows: (owner, which) -> key."""
    kind = type(message).__name__
    names = arena.contributors
    if kind == "KeysListed":
        pairs = zip(message.neighbours, message.advertised, strict=True)
        return {(names[at], which): getattr(keys, which) for at, keys in pairs for which in MASKED_KEYS}
    if kind in ("RosterNamed", "KeysChanged"):
        others = message.names if kind == "KeysChanged" else [name for name in message.names if name != to]
        return {("miner", "miner"): message.miner} | {(o, "key"): k for o, k in zip(others, message.publics, strict=True)}
    if kind == "RosterListed":
        peers = [name for name in names if name != to]  # the complete graph
        keys = [message.keys[at : at + 32] for at in range(0, len(message.keys), 32)]
        return {("builder", "key"): message.builder_key} | {(o, "key"): k for o, k in zip(peers, keys, strict=True)}
    if kind == "KeysAdvertised":
        return {("", which): getattr(message, which) for which in MASKED_KEYS}
    if kind == "KeyAnnounced":
        field = "public" if hasattr(message, "public") else "key"
        return {("", field): getattr(message, field)}
    return {}


def with_keys(arena: Arena, to: str, message: Any, chosen: Mapping[tuple[str, str], bytes]) -> Any:
    """The message with other keys in some of its slots."""
    kind = type(message).__name__
    slots = {**key_slots(arena, to, message), **chosen}
    if kind == "KeysListed":
        advertised = []
        for at, keys in zip(message.neighbours, message.advertised, strict=True):
            own = {which: slots[arena.contributors[at], which] for which in MASKED_KEYS}
            advertised.append(replace(keys, **own))
        return replace(message, advertised=tuple(advertised))
    if kind in ("RosterNamed", "KeysChanged"):
        others = message.names if kind == "KeysChanged" else [name for name in message.names if name != to]
        return replace(message, miner=slots["miner", "miner"], publics=tuple(slots[other, "key"] for other in others))
    if kind == "RosterListed":
        peers = [name for name in arena.contributors if name != to]
        return replace(message, builder_key=slots["builder", "key"], keys=b"".join(slots[peer, "key"] for peer in peers))
    return replace(message, **{which: key for (_, which), key in slots.items()})


LISTS = ("KeysListed", "RosterNamed", "KeysChanged", "RosterListed")


def chosen_keys(arena: Arena, coalition: Sequence[str], *, to_each: bool = True) -> Iterator[Deviation]:
    """One key of the coalition, as the reader shows it, is another; to all honest parties or to one of them."""
    sent = sent_by(arena, coalition)
    lists = [(sender, to, message) for sender, to, message in sent if type(message).__name__ in LISTS]
    others = [name for name in arena.contributors if name not in coalition]
    shown = {to: key_slots(arena, to, message) for _, to, message in lists}
    everybody = {slot: key for slots in shown.values() for slot, key in slots.items()}
    for slot, old in everybody.items():
        if slot[0] not in coalition:
            continue
        pool = {f"{owner}'s {which}": key for (owner, which), key in everybody.items() if key != old}
        pool |= {f"small order {number % 1000}": number.to_bytes(32, "little") for number in SMALL}
        pool["its own with the unused bit"] = old[:-1] + bytes([old[-1] | 0x80])
        pool |= {
            f"{owner}'s {which} with the unused bit": key[:-1] + bytes([key[-1] | 0x80])
            for (owner, which), key in everybody.items()
            if owner not in coalition
        }
        for title, key in pool.items():
            for only in (None, *others) if to_each else (None,):
                yield f"{slot[0]}'s {slot[1]} shown to {only or 'all'} is {title}", _show(arena, {slot: key}, only)
    for sender, to, message in sent:  # a contributor's own announcement
        if type(message).__name__ in ("KeysAdvertised", "KeyAnnounced") and arena.reader not in coalition:
            for slot, old in key_slots(arena, to, message).items():
                for number in (*SMALL, int.from_bytes(old, "little") | 1 << 255):
                    chosen = {slot: number.to_bytes(32, "little")}
                    yield f"{sender} announces {slot[1]} {number % 1000}", _announce(arena, sender, chosen)


def copies(arena: Arena, coalition: Sequence[str], which: str) -> Iterator[Deviation]:
    """All colluders at once show copies of honest parties' keys, in every way to share them out."""
    colluders = [name for name in arena.contributors if name in coalition]
    others = [name for name in arena.contributors if name not in coalition]
    sent = sent_by(arena, coalition)
    keys: dict[tuple[str, str], bytes] = {}
    for _, to, message in sent:
        if type(message).__name__ in LISTS:
            keys |= key_slots(arena, to, message)
    for models in itertools.product(others, repeat=len(colluders)):
        chosen = {(thief, which): keys[model, which] for thief, model in zip(colluders, models, strict=True)}
        title = ", ".join(f"{thief} as {model}" for thief, model in zip(colluders, models, strict=True))
        yield f"copies: {title}", _show(arena, chosen, None)


def _show(arena: Arena, chosen: Mapping[tuple[str, str], bytes], only: str | None) -> Change:
    def change(sender: str, to: str, message: Any) -> Any:
        if type(message).__name__ not in LISTS or only not in (None, to):
            return message
        slots = key_slots(arena, to, message)
        return with_keys(arena, to, message, {slot: key for slot, key in chosen.items() if slot in slots})

    return change


def _announce(arena: Arena, name: str, chosen: Mapping[tuple[str, str], bytes]) -> Change:
    def change(sender: str, to: str, message: Any) -> Any:
        if sender != name or type(message).__name__ not in ("KeysAdvertised", "KeyAnnounced"):
            return message
        return with_keys(arena, to, message, chosen)

    return change


__all__ = ["chosen_keys", "copies", "honest", "key_slots", "sent_by", "systematic", "variants", "with_keys"]
