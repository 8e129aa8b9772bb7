"""The data folder: packed files within their limits, unpacked."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindbayes.agent.store import data_folder
from blindbayes.errors import ConfigError


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_a_workbook_whose_packed_part_is_damaged_is_refused(tmp_path: Path, method: int) -> None:
    """The decompressor's own error came through (found by tests/fuzz)."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("xl/sheet", os.urandom(500))
    raw = bytearray(packed.getvalue())
    raw[38 + 4 : 200] = b"\xff" * (200 - 42)
    upload = data_folder.DataFolder(tmp_path / "data", 1 << 20, 0).begin("rows.xlsx")
    upload.write(bytes(raw))
    with pytest.raises(ConfigError, match="not a workbook"):
        upload.finish()
    upload.abandon()


def test_a_parquet_file_whose_rows_unpack_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    folder = data_folder.DataFolder(tmp_path / "data", max_bytes=1 << 20, min_free_bytes=0)
    bomb, fine = io.BytesIO(), io.BytesIO()
    rows = pa.table({"class": ["x" * 1000] * 5000})
    pq.write_table(rows, bomb, compression="zstd", use_dictionary=False)
    pq.write_table(rows, fine, compression="zstd", use_dictionary=False, row_group_size=500)
    for content, refusal in (
        (bomb.getvalue(), "smaller row groups"),
        (b"PAR1" * 9, "not a Parquet file"),
        (fine.getvalue(), ""),
    ):
        assert len(content) < 1 << 18
        upload = folder.begin("rows.parquet")
        upload.write(content)
        if refusal:
            with pytest.raises(ConfigError, match=refusal):
                upload.finish()
            upload.abandon()
            assert list((tmp_path / "data").iterdir()) == []
        else:
            upload.finish()
    assert [each["name"] for each in folder.files()] == ["rows.parquet"]
