"""Messages of noisy_histograms."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class HistogramsReleased(Message, frozen=True):
    """One party's value x class counts with noise; its codebook's hash, so that a miner with another one refuses."""

    trust: ClassVar[Trust] = Trust.NOISY
    codebook: str
    counts: U64Array
