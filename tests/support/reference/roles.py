"""Roles of the plaintext protocol. Step numbers as in SPEC.md."""

from __future__ import annotations

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all, send_all
from blindbayes.protocols.registry import Smallest, SumProtocol, SumSetup, Total, require_options, require_vector
from blindbayes.wire import U64Array
from support.reference.messages import TotalShown, VectorShown

COLLECTOR = "collector"


def contributor(run: Run, setting: SumSetup, vector: U64Array) -> Role[Total]:
    """Send the vector to the collector and receive the total."""
    yield Send(COLLECTOR, VectorShown(vector))  # 1
    shown = yield from receive(COLLECTOR, TotalShown)  # 3
    if len(shown.total) != setting.length or not set(shown.included) <= set(setting.contributors):
        raise PeerProtocolError("the total does not fit the setting", party=COLLECTOR)
    yield from open_value(setting.label, shown.total)
    return Total(shown.total, shown.included)


def collector(run: Run, setting: SumSetup) -> Role[Total]:
    """Add up in clear."""
    shown = yield from receive_all(setting.contributors, VectorShown, quorum=setting.quorum)  # 2
    total = np.zeros(setting.length, np.uint64)
    for name, message in shown.items():
        if len(message.vector) != setting.length:
            raise PeerProtocolError("the vector has another length", party=name)
        total += message.vector
    yield from open_value("vectors", None)
    yield from open_value(setting.label, total)
    yield from send_all(tuple(shown), TotalShown(total, tuple(shown)))  # 3
    return Total(total, tuple(shown))


class Reference(SumProtocol):
    """The plaintext protocol."""

    name = "reference"

    def check(self, setting: SumSetup) -> None:
        require_options(setting, {})

    def roster(self, setting: SumSetup) -> tuple[str, ...]:
        return (*setting.contributors, COLLECTOR)

    def learners(self, setting: SumSetup) -> tuple[str, ...]:
        return self.roster(setting)

    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """Return 1: the collector sees every vector by itself."""
        return Smallest(1)

    def role(self, run: Run, setting: SumSetup, vector: U64Array | None, coins: Coins) -> Role[Total | None]:
        require_options(setting, {})
        if run.me == COLLECTOR:
            return (yield from collector(run, setting))
        return (yield from contributor(run, setting, require_vector(vector, setting, run.me)))


PROTOCOL = Reference()
