"""The page docs/what-we-tried.md, made from docs/what-we-tried.json: it states what is stored, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

HEAD = """# What we tried

Written by `make tried` from stored results (`docs/what-we-tried.json`). The commands store their counts with `--store`,
with date and commit. A long trial may be the sum of parts with seeds of their own, all at that commit. One that is marked
"-dirty" had uncommitted changes. How long a trial was says how much it means: a short one is a check that the tool works,
not a proof.

| what | result | command | date | commit |
|---|---|---|---|---|
"""
ROWS: Mapping[str, tuple[str, str, str]] = {
    "attacks": ("Attacks on the product, as tests", "{passed:,} passed, {failed:,} failed", "python tests/tried --attacks"),
    "sabotages": ("One-line sabotages of critical lines", "{noticed:,} of {tried:,} noticed by their tests", "make sabotage"),
    "audits": ("Audits of our own privacy claims", "{verdict}, at a claimed epsilon of {epsilon}", "make audit"),
    "fuzz": (
        "Fuzzing of every reader of what others send",
        "{inputs:,} inputs to {targets:,} readers, {findings:,} findings; slowest {slowest_seconds} s",
        "make fuzz",
    ),
    "system": (
        "Lists of operations (kill, restore, join, cut, fill, deviate)",
        "{lists:,} lists, {operations:,} operations, {runs:,} runs, {failures:,} failures",
        "make system",
    ),
    "kills": (
        "kill -9 of agents that are processes",
        "{kills:,} kills in {cycles:,} runs, {amid:,} of them in the midst of one, {failures:,} violations",
        "make system",
    ),
    "soak": (
        "Agents that run back to back",
        "{runs:,} runs in {minutes:g} minutes, {grown:,} of memory, handles, threads, files grew; memory +{memory_mb} MB",
        "make soak",
    ),
}


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def rendered(stored: Mapping[str, Mapping[str, Any]]) -> str:
    """The page. Raises `KeyError` for a stored kind that it does not know, or a figure that is not stored."""
    lines = []
    for name in sorted(stored, key=list(ROWS).index):
        what, result, command = ROWS[name]
        own = stored[name]
        lines.append(f"| {what} | {result.format(**own['figures'])} | `{command}` | {own['date']} | {own['commit']} |\n")
    missing = [what for name, (what, _, _) in ROWS.items() if name not in stored]
    tail = f"\nNot stored yet: {'; '.join(missing)}.\n" if missing else ""
    return HEAD + "".join(lines) + tail
