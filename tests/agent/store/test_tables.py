"""Tables of a site: how they are read does not change what they are."""

from __future__ import annotations

from pathlib import Path

from blindbayes.agent.config import Rows
from blindbayes.agent.store.tables import Tables


def test_markers_marks_and_maps_leave_the_digest_of_the_rows_as_it_is(tmp_path: Path) -> None:
    """Otherwise the same rows, read in another way, could pass for another table in exact sums."""
    (tmp_path / "rows.csv").write_text("y;job;pay\nno;?;1.234,5\nyes;cook;12\n")
    readings = [Rows("rows.csv"), Rows("rows.csv", missing=("?", "12")), Rows("rows.csv", decimal=",", thousands=".")]
    readings.append(Rows("rows.csv", map={"job": {"from": "job", "values": {"?": "cook"}}}))
    assert len({Tables(tmp_path, rows).digest(b"k" * 32) for rows in readings}) == 1
