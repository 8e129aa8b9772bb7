"""`joined_scores`: classes of everybody a party knows, with the others' columns where they are shared. See SPEC.md."""

from blindbayes.protocol.joined_scores.roles import (
    NONE,
    HelperInput,
    JoinedScoresSetup,
    Scope,
    ScorerInput,
    connect,
    helper,
    scorer,
)
from blindbayes.protocol.joined_scores.shape import LookupSetup

__all__ = ["NONE", "HelperInput", "JoinedScoresSetup", "LookupSetup", "Scope", "ScorerInput", "connect", "helper", "scorer"]
