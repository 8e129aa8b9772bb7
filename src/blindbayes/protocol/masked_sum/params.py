"""What a study may choose about a masked sum. See SPEC.md."""

from __future__ import annotations

import msgspec


class MaskedSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of masked_sum."""

    neighbours: int | None = None  # masks that each contributor shares; by default with all others, up to 64 contributors
    corrupt: float = 0.1  # on a sparse graph: the fraction of contributors that may collude
    malicious_server: bool = True  # thresholds that bear a server that deviates
    publish: bool = True  # the contributors learn the sum too, not the server alone
