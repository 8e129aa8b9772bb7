"""Documents as HTML: the Markdown that they use, and nothing that a text could slip in."""

from __future__ import annotations

from blindbayes.report.prose import to_html


def test_headings_lists_and_tables_are_converted() -> None:
    text = "# Title\n\nOne line\nand another.\n\n- a\n- b\n\n| h | i |\n|---|---|\n| 1 \\| 2 | 3 |\n"
    shown = to_html(text, below=1)
    assert shown.startswith("<h2>Title</h2>\n<p>One line and another.</p>\n<ul><li>a</li><li>b</li></ul>")
    assert "<tr><th>h</th><th>i</th></tr><tr><td>1 | 2</td><td>3</td></tr>" in shown


def test_a_text_stays_a_text() -> None:
    assert to_html(r"\<b\>&lt;script&gt;\*x\*") == "<p>&lt;b&gt;&lt;script&gt;*x*</p>"


def test_the_head_of_a_model_card_is_left_out() -> None:
    assert to_html("---\ntags: [x]\n---\n# Card\n") == "<h1>Card</h1>"
