"""Tables that people bring, and what browsers and programs send to the console."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from blindbayes import NaiveBayes
from blindbayes.agent.store.data_folder import DataFolder
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import View, validated
from blindbayes.console.forms import delimiter_of, fields_of, urlencoded
from blindbayes.console.uploads import UploadParts
from blindbayes.errors import BlindbayesError
from blindbayes.io.untrusted import read_json_table
from fuzz.targets import Target

BOOK = Codebook("ill", ("no", "yes"), (Categorical("smoker", ("never", "now")), Numeric("age", 0, 99, bins=4)), max_rows=1000)
ROWS = {"ill": ["no", "yes", "no", "yes"], "smoker": ["never", "now", "never", "now"], "age": [31.0, 47.5, 80.0, 12.0]}
MULTIPART = "multipart/form-data; boundary=seam"


def _bytes_of(write: Callable[[Any], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def _table_targets(folder: Path) -> Iterable[Target]:
    frame, table = pd.DataFrame(ROWS), pa.table(ROWS)
    csv = frame.to_csv(index=False).encode()
    good = {
        "csv": (csv, b"\xef\xbb\xbf" + csv, csv.replace(b",", b";"), b'ill,smoker,age\n"no","never","31"\n'),
        "parquet": (
            _bytes_of(lambda out: pq.write_table(table, out)),
            _bytes_of(lambda out: pq.write_table(table, out, compression="none", use_dictionary=False)),
        ),
        "xlsx": (_bytes_of(lambda out: frame.to_excel(out, index=False)),),
        "csv.gz": (_bytes_of(lambda out: frame.to_csv(out, index=False, compression="gzip")),),
    }
    for ending, seeds in good.items():

        def read(raw: bytes, path: Path = folder / f"rows.{ending}") -> None:
            path.write_bytes(raw)
            NaiveBayes(BOOK).fit(path)

        yield Target(f"table {ending}", seeds, read)
    data = DataFolder(folder / "data", 1 << 20, 0)

    def upload(raw: bytes) -> None:
        """A workbook, stored piece by piece."""
        found = data.begin("rows.xlsx", replace=True)
        try:
            for at in range(0, len(raw), 700):
                found.write(raw[at : at + 700])
            found.finish()
        finally:
            found.abandon()

    yield Target("upload of a workbook", good["xlsx"], upload)


def _form_targets(folder: Path) -> Iterable[Target]:
    pairs = {"study": "ab" * 32, "runs": "3", "why": "because", "csrf": "0" * 64}
    yield Target("form", (urlencode(pairs).encode(),), urlencoded)
    parts = "".join(
        f'--seam\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in pairs.items()
    )
    file = '--seam\r\nContent-Disposition: form-data; name="file"; filename="rows.csv"\r\n\r\nill,age\r\n--seam--\r\n'
    multipart = (parts + file).encode()
    yield Target("form with files", (multipart,), lambda raw: fields_of(MULTIPART, raw))

    def streamed(raw: bytes) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(raw), 97):
                yield raw[at : at + 97]

        async def inner() -> None:
            reading = UploadParts(pieces(), delimiter_of(MULTIPART))
            while (part := await reading.next()) is not None:
                if part[1] is None:
                    await reading.text()
                else:
                    async for _ in reading.content():
                        pass

        asyncio.run(inner())

    yield Target("upload form", (multipart,), streamed)
    kinds = [call.takes for call in CALLS]

    def body(raw: bytes) -> None:
        """A body of each call of the API, and the same fields as those of a form."""
        fields = read_json_table(raw, "the request")
        for call, kind in zip(CALLS, kinds, strict=True):
            if not isinstance(call, View):
                _quietly(lambda kind=kind: validated(kind, fields, strict=True))
                texts = {name: str(value) for name, value in fields.items()}
                _quietly(lambda kind=kind, texts=texts: validated(kind, texts, strict=False))

    bodies = [{field.name: _plain(field.type) for field in msgspec.structs.fields(kind)} for kind in kinds]
    yield Target("request to the API", tuple({json.dumps(each).encode() for each in bodies if each}), body)


def _quietly(read: Callable[[], object]) -> None:
    with contextlib.suppress(BlindbayesError):
        read()


def _plain(kind: Any) -> Any:
    return {int: 3, float: 0.5, bool: True, str: "ab" * 32}.get(kind, "north")


def targets(folder: Path) -> Iterable[Target]:
    yield from _table_targets(folder)
    yield from _form_targets(folder)
