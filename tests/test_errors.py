"""What other sites hear of a site that gives up."""

from __future__ import annotations

from blindbayes import errors
from blindbayes.errors import BlindbayesError, public_code

ABOUT_OTHERS = {"PeerProtocolError", "IntegrityError", "UndisclosedError", "PeerLost", "RunStopped"}


def test_a_sites_own_table_rules_and_budget_are_one_word() -> None:
    """So that nobody tells from the kind of a refusal which bound, of its own making, another's table has passed."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, BlindbayesError)]
    assert len(kinds) > 10
    for kind in kinds:
        assert public_code(kind.code) == (kind.code if kind.__name__ in ABOUT_OTHERS else BlindbayesError.code), kind
