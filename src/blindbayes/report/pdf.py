"""A release's papers as one PDF, to be printed and signed. An extra: `pip install 'blindbayes[pdf]'`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from blindbayes._lazy import need
from blindbayes.errors import DataError
from blindbayes.io.untrusted import read_json_table
from blindbayes.report.checksums import CHECKSUMS, Verified
from blindbayes.report.cover_sheet import OFFICER
from blindbayes.report.prose import BlockOfText, blocks

if TYPE_CHECKING:
    from fpdf import FPDF

_SIZES = {1: 16, 2: 12, 3: 11}


def pdf_of(files: Mapping[str, bytes], verified: Verified) -> bytes:
    """Statement and card as they stand in the folder, lines to fill in for the officer, who signed, and the folder's hash."""
    page = _paper()
    page.add_page()
    for name in ("statement.md", "model_card.md"):
        if name in files:
            for block in blocks(files[name].decode()):
                _write(page, block)
            page.ln(4)
    cover = read_json_table(files["cover.json"], "cover.json", error=DataError) if "cover.json" in files else {}
    known = {str(name): str(text) for name, text in cover.get("officer", {}).items()}
    page.add_page()
    _write(page, BlockOfText("heading", (("For the data protection officer",),), 1))
    _write(
        page,
        BlockOfText(
            "table", (("question", "answer"), *((f"{name}: {why}", known.get(name, "\n\n")) for name, why in OFFICER.items()))
        ),
    )
    digest = hashlib.sha256(files[CHECKSUMS]).hexdigest()
    _write(page, BlockOfText("paragraph", ((f"SHA-256 of the folder's checksums: {digest}",),)))
    signers = ", ".join(f"{name} (key {key.hex()[:16]})" for name, key in verified.signers.items()) or "nobody"
    _write(page, BlockOfText("paragraph", ((f"Signed in the folder by {signers}.",),)))
    _write(page, BlockOfText("paragraph", (("Place, date, signature: ______________________________",),)))
    return bytes(page.output())


def _paper() -> FPDF:
    need("fpdf")
    from fpdf import FPDF
    from matplotlib import get_data_path

    class Paper(FPDF):
        def footer(self) -> None:
            self.set_y(-12)
            self.set_font("DejaVu", size=8)
            self.cell(0, 8, f"page {self.page_no()} of {{nb}}", align="C")

    page = Paper()
    fonts = f"{get_data_path()}/fonts/ttf"  # names of wards and columns are not Latin everywhere
    page.add_font("DejaVu", fname=f"{fonts}/DejaVuSans.ttf")
    page.add_font("DejaVu", "B", fname=f"{fonts}/DejaVuSans-Bold.ttf")
    page.set_margins(20, 18, 20)
    page.set_auto_page_break(True, 18)
    return page


def _write(page: Any, block: BlockOfText) -> None:
    if block.kind == "heading":
        page.ln(2)
        page.set_font("DejaVu", "B", _SIZES.get(block.level, 10))
        page.multi_cell(0, 7, block.rows[0][0], align="L", new_x="LMARGIN", new_y="NEXT")
        return
    page.set_font("DejaVu", size=9)
    if block.kind == "table":
        with page.table(line_height=5, text_align="LEFT") as table:
            for row in block.rows:
                table.row(row)
        page.ln(2)
        return
    mark = "• " if block.kind == "list" else ""
    for row in block.rows:
        page.multi_cell(0, 5, mark + row[0], align="L", new_x="LMARGIN", new_y="NEXT")
    page.ln(1)
