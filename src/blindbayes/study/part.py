"""One party's part in a study over columns: used unchanged in one process and by a site's agent.

A part knows its party's input and nothing of the others' but what is public. It makes the role; whoever drives the role brings
the run and the coins.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.core import Role, Run


class Training(Protocol):
    """One party's part of training: what it brings, and its role."""

    @property
    def party(self) -> str:
        """Whose part it is."""
        ...

    @property
    def rows(self) -> int:
        """Rows that the party brings, for thresholds; never told to others by this object."""
        ...

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded input: a run that is taken up after a crash must find the same."""
        ...

    def role(self, run: Run, coins: Coins) -> Role[Any]:
        """The party's role. Its result goes to `share`."""
        ...

    def share(self, trained: Any, study: str) -> ModelShare:
        """What the party keeps, from what its role returned; the same for the same result."""
        ...


class Scoring(Protocol):
    """One party's part of one joint classification, the setup of transfers included."""

    @property
    def party(self) -> str:
        """Whose part it is."""
        ...

    @property
    def count(self) -> int:
        """Instances: what the query budget is charged."""
        ...

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded instances."""
        ...

    def role(self, run: Run, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        """The party's role: class indices for a learner, None for another. Works in batches of bounded size."""
        ...
