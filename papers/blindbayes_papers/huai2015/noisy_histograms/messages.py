"""Messages of noisy_histograms."""

from __future__ import annotations

from blindbayes.wire import NoisyMessage, U64Array


class HistogramsReleased(NoisyMessage, frozen=True):
    """One party's value x class counts with noise; its codebook's hash, so that a miner with another one refuses."""

    codebook: str
    counts: U64Array
