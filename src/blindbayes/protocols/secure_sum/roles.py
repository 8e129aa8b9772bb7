"""The masked sum behind the interface of `protocol.registry`."""

from __future__ import annotations

import contextlib

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.registry import Coalition, Smallest, SumProtocol, SumSetup, Total, require_options, require_vector
from blindbayes.protocols.secure_sum import graph
from blindbayes.protocols.secure_sum.contributor import contributor
from blindbayes.protocols.secure_sum.keys import OPTIONS, SERVER, MaskedSumSetup
from blindbayes.protocols.secure_sum.params import MaskedSumParams
from blindbayes.protocols.secure_sum.server import server
from blindbayes.wire import U64Array


class MaskedSum(SumProtocol):
    """A sum under pairwise masks over a graph, with recovery of lost contributors."""

    name = "masked_sum"
    params = MaskedSumParams

    def check(self, setting: SumSetup) -> None:
        MaskedSumSetup(Run("", "", ("*",), "*"), setting)

    def roster(self, setting: SumSetup) -> tuple[str, ...]:
        return (*setting.contributors, SERVER)

    def learners(self, setting: SumSetup) -> tuple[str, ...]:
        publish = require_options(setting, OPTIONS)["publish"]
        return self.roster(setting) if publish else (SERVER,)

    def resists(self, setting: SumSetup) -> bool:
        return True

    def waits_for_all(self, setting: SumSetup) -> bool:
        """Return True on the complete graph with a quorum of all, where seeds open only with everybody's shares."""
        layout = self._layout(setting)
        return layout.complete and layout.threshold == len(setting.contributors)

    def bears(self, setting: SumSetup) -> Coalition:
        """Return the coalition of SPEC.md, Threat model; point 3 there for a deviating server on a sparse graph."""
        corrupt: float | None = setting.corrupt
        with contextlib.suppress(ConfigError):  # a graph that no run can have, among options that people compare
            corrupt = None if self._layout(setting).complete else corrupt
        size, quorum_size = len(setting.contributors), setting.quorum_size
        passive, active = (graph.max_colluders(size, quorum_size, corrupt, malicious=bad) for bad in (False, True))
        return Coalition("the server", passive, active, parts=corrupt is not None)

    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """Return the smallest sum of SPEC.md, Threat model: at least the quorum, or a neighbourhood of the graph."""
        parties = len(setting.contributors)
        return graph.smallest_sum(parties, setting.quorum_size, self._layout(setting), corrupt, malicious=malicious)

    @staticmethod
    def _layout(setting: SumSetup) -> graph.MaskGraph:
        return MaskedSumSetup(Run("", "", ("*",), "*"), setting).plan

    def role(self, run: Run, setting: SumSetup, vector: U64Array | None, coins: Coins) -> Role[Total | None]:
        terms = MaskedSumSetup(run, setting)
        if run.me == SERVER:
            return server(terms)
        return contributor(terms, require_vector(vector, setting, run.me), coins)


PROTOCOL = MaskedSum()
