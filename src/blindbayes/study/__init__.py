"""Studies: what several parties agree on, and its file."""

from blindbayes.study.study import FEWEST_EXACT, ColumnStudy, JoinStudy, RowStudy, Study

__all__ = ["FEWEST_EXACT", "ColumnStudy", "JoinStudy", "RowStudy", "Study"]
