"""The registry of protocols: each is tested, and unknown options are refused."""

from __future__ import annotations

import pytest

from blindbayes.errors import ConfigError
from blindbayes.protocols import registry
from support.protocols import READY, SMALL, small_vectors
from support.sums import names, run_sum


def test_every_registered_protocol_is_here() -> None:
    assert set(READY) == set(registry.known())


@pytest.mark.parametrize("protocol", READY)
def test_an_unknown_option_is_refused(protocol: str) -> None:
    with pytest.raises(ConfigError, match="no_such"):
        run_sum(protocol, small_vectors(names(3), 2), bound=SMALL, options={"no_such": 1})
