"""Roles that are not the shipped ones, where a change of messages is not enough."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from blindbayes.crypto.aead import TAG_BYTES
from blindbayes.protocols.core import Role, Run, Send, receive_all
from blindbayes.protocols.registry import SumSetup
from blindbayes.protocols.secure_sum import graph, keys, messages, server


def story_teller(setting: SumSetup, told: Mapping[str, Collection[str]]) -> Callable[[Run], Role[None]]:
    """A server of masked_sum that names to each contributor the survivors it likes, passes on the echoes that help, and goes on
    with whoever answers."""

    def role(run: Run) -> Role[None]:
        terms = keys.MaskedSumSetup(run, setting)
        sites = setting.contributors
        around = [terms.neighbours(index) for index in range(len(sites))]
        advertised = yield from receive_all(sites, messages.KeysAdvertised)
        listed = {index: advertised[name] for index, name in enumerate(sites)}
        roster, passing = terms.roster(listed), server.Encapsulated(terms, listed)
        for index, name in enumerate(sites):
            theirs = tuple(advertised[sites[other]] for other in around[index])
            yield Send(name, messages.KeysListed(around[index], theirs, passing.to(index, around[index])))
        dealt = yield from receive_all(sites, messages.SharesDealt)
        for index, name in enumerate(sites):
            boxes = [_item(dealt[sites[other]].boxes, keys.BOX_BYTES, around[other].index(index)) for other in around[index]]
            yield Send(name, messages.SharesPassedOn(around[index], b"".join(boxes)))
        yield from receive_all(sites, messages.MaskedVectorSent)
        for name in sites:
            survivors = graph.pack_bits([other in told[name] for other in sites])
            yield Send(name, messages.SurvivorsNamed(survivors, roster, terms.sign(b"survivors", roster + survivors)))
        echoed = yield from receive_all(sites, messages.SurvivorsEchoed, quorum=0)
        for name in echoed:
            yield Send(name, _echoes(sites, around, told, echoed, name))
        yield from receive_all(tuple(echoed), messages.SharesGiven, quorum=0)

    return role


def _item(packed: bytes, size: int, at: int) -> bytes:
    return packed[size * at : size * at + size]


def _echoes(sites: Any, around: Any, told: Any, echoed: Any, name: str) -> messages.EchoesPassedOn:
    """The tags of those who were told the same."""
    index = sites.index(name)
    helpful, tags = [], []
    for other in around[index]:
        friend = sites[other]
        if friend not in told[name] or friend not in echoed:
            continue
        seen = [each for each in around[other] if sites[each] in told[friend]]
        if index in seen and set(told[friend]) == set(told[name]):
            helpful.append(other)
            tags.append(_item(echoed[friend].tags, TAG_BYTES, seen.index(index)))
    return messages.EchoesPassedOn(tuple(helpful), b"".join(tags))
