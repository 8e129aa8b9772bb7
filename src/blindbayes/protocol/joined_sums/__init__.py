"""`joined_sums`: shares of class-conditional sums over identifiers that both parties have. See SPEC.md."""

from blindbayes.protocol.joined_sums.inputs import Entries, merge, one_hot
from blindbayes.protocol.joined_sums.roles import (
    FAILURE_BITS,
    MAX_BOUND,
    MIN_BOUND,
    JoinedShares,
    JoinedSumsSetup,
    LabelShares,
    RowShares,
    label_holder,
    row_holder,
)

__all__ = [
    "FAILURE_BITS",
    "MAX_BOUND",
    "MIN_BOUND",
    "Entries",
    "JoinedShares",
    "JoinedSumsSetup",
    "LabelShares",
    "RowShares",
    "label_holder",
    "merge",
    "one_hot",
    "row_holder",
]
