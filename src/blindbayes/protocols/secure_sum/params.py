"""The options of a masked sum. See SPEC.md."""

from __future__ import annotations

from typing import Annotated

import msgspec


class MaskedSumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of masked_sum."""

    publish: Annotated[bool, "the contributors learn the sum too, not the server alone"] = True
