"""`noisy_histograms`: parties that all know the class each release their own noisy histograms. See SPEC.md."""

from blindbayes_papers.huai2015.noisy_histograms.roles import NoisyHistogramsSetup, contributor, miner

__all__ = ["NoisyHistogramsSetup", "contributor", "miner"]
