"""Every pair of colours that text stands in can be read, in both themes: 4.5 to 1 (WCAG 2.2, level AA), from the CSS."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from blindbayes.report.theme import render

SHEETS = render("theme.css") + (files("blindbayes.console") / "static" / "console.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([a-z-]+):(#[0-9a-f]+)", text))
    for text in re.findall(r":root{([^}]*--mark:[^}]*)}", render("theme.css"))
)
# by ground: what stands on it, as words
ON = {
    "face": (
        "text",
        "soft",
        "mark",
        "good",
        "warn",
        "bad",
        "for",
        "against",
        "clear",
        "noisy",
        "share",
        "masked",
        "encrypted",
        "key",
    ),
    "back": ("text", "soft", "mark", "good", "warn", "bad"),
    "mark-back": ("text", "mark", "soft"),
    "mark": ("face",),  # buttons and badges
    "good-back": ("text",),
    "warn-back": ("text",),
    "bad-back": ("text", "mark"),
}


def _light(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((_light(one), _light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_measure_is_the_one_of_the_standard() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)  # the best known grey that just fails


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_on_every_ground(theme: dict[str, str]) -> None:
    found = {(word, ground): contrast(theme[word], theme[ground]) for ground, words in ON.items() for word in words}
    assert {pair: round(value, 2) for pair, value in found.items() if value < 4.5} == {}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_edges_of_fields_and_filled_bars_can_be_told_from_what_is_around_them(theme: dict[str, str]) -> None:
    pairs = [
        ("soft", "back"),
        ("soft", "face"),
        ("mark", "back"),
        ("mark", "face"),
        ("mark", "bar"),
        ("bad", "bar"),
        ("warn", "bar"),
    ]
    assert {
        pair: round(contrast(theme[pair[0]], theme[pair[1]]), 2)
        for pair in pairs
        if contrast(theme[pair[0]], theme[pair[1]]) < 3
    } == {}


def test_no_colour_of_words_stands_outside_the_two_themes() -> None:
    assert set(LIGHT) == set(DARK)
    used = set(re.findall(r"[;{]color:([^;}]+)", SHEETS))
    known = {f"var(--{word})" for words in ON.values() for word in words} | {"inherit"}
    assert used <= known, used - known
    assert not set(re.findall(r"background:var\(--([a-z-]+)\)", SHEETS)) - set(ON) - {"bar", "line", "good", "bad"}
