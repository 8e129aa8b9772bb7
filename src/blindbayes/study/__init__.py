"""Studies of several parties: what they agree on, its file, and its run in one process by partition and protocol."""

from blindbayes.study.study import EXACT, FEWEST_EXACT, RATIO, Partition, Study

__all__ = ["EXACT", "FEWEST_EXACT", "RATIO", "Partition", "Study"]
