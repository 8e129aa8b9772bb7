"""What a protocol's SPEC.md says, for reports and pages: its paragraphs, its labels, and how large a coalition it bears.

A protocol for rows states under `[collusion]`, as formulas in n (contributors), q (quorum) and its options: `passive`, the
number of contributors that may pool what they saw with the `reader` of the sum and still learn nothing but the sum of the
others; `active`, the same for a reader that deviates from the protocol (negative: nothing is claimed); `trusted`, a role that
is not among them wherever `needs_trust` holds, since with the reader it reads every contribution.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any

from blindbayes import extensions
from blindbayes.errors import ConfigError
from blindbayes.protocol import registry
from blindbayes.report.formula import value_of

_FIXED = ("reader", "passive", "active", "defaults", "trusted", "needs_trust", "parts")


@dataclass(frozen=True, slots=True)
class Coalition:
    """How many contributors may collude, besides the reader of the sum."""

    reader: str  # empty: every party reads
    passive: int
    active: int  # negative: nothing is claimed
    parts: bool = False  # a reader that deviates may learn sums over parts of the others, if each is large
    trusted: str = ""  # a role that must stay outside: together with the reader it reads every contribution


@dataclass(frozen=True, slots=True)
class Spec:
    """A SPEC.md."""

    name: str
    text: str

    @property
    def table(self) -> dict[str, Any]:
        """The machine-readable part."""
        return registry.spec_table(self.text)

    @property
    def opened(self) -> tuple[str, ...]:
        """Every label that the protocol opens, noise off."""
        return tuple(self.table["opened"])

    @property
    def prose(self) -> str:
        """The page without its machine-readable part."""
        return re.sub(r"```toml\n.*?```\n*", "", self.text, flags=re.DOTALL)

    def paragraph(self, title: str) -> str:
        """The text under a title, bold at the start of a paragraph or a heading; as plain text. Empty if there is none."""
        bold = re.search(rf"^\*\*{title}[.,]?\*\*[.,]?\s+(.*?)(?=\n\n|\n```|\Z)", self.prose, flags=re.DOTALL | re.MULTILINE)
        heading = re.search(rf"^## {title}[^\n]*\n+(.*?)(?=\n\n|\Z)", self.prose, flags=re.DOTALL | re.MULTILINE)
        found = bold or heading
        return _plain(found.group(1)) if found else ""

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of options that decide how large a coalition the protocol bears."""
        return dict(self.table.get("collusion", {}).get("defaults", {}))

    def coalition(self, contributors: int, quorum: int, options: Mapping[str, Any]) -> Coalition | None:
        """What the protocol bears at this number of contributors. None if it claims nothing."""
        rules = self.table.get("collusion")
        if rules is None:
            return None
        names: dict[str, float] = {"n": contributors, "q": quorum, **rules.get("defaults", {})}
        names.update({name: value for name, value in options.items() if isinstance(value, int | float)})
        for name, value in options.items():  # a text counts as given, and under its own name: keys = "dealer" is keys_dealer
            if isinstance(value, str):
                names |= {name: 1, f"{name}_{value}": 1}
        for name, formula in rules.items():
            if name not in _FIXED:
                names[name] = value_of(formula, names)
        passive, active = (int(value_of(rules.get(kind, "-1"), names)) for kind in ("passive", "active"))
        trusted = rules.get("trusted", "") if value_of(rules.get("needs_trust", "1"), names) else ""
        parts = bool(value_of(rules.get("parts", "0"), names))
        return Coalition(rules["reader"], passive, active, parts, trusted)


@cache
def _folders() -> dict[str, Traversable]:
    """Where protocols stand, each in a folder of its own with its SPEC.md."""
    added = {module.rpartition(".")[0] for module in extensions.added(extensions.SCHEMES).values()}
    rooms = [folder for room in (*sorted(added), "blindbayes.protocol") for folder in importlib.resources.files(room).iterdir()]
    listed = [importlib.resources.files(module) for module in registry.ROWS.values()]  # wherever a protocol's folder stands
    return {folder.name: folder for folder in (*rooms, *listed) if (folder / "SPEC.md").is_file()}


def protocols() -> tuple[str, ...]:
    """Every protocol that has a SPEC.md, by name."""
    return tuple(sorted(_folders()))


def read_spec(name: str) -> Spec:
    """The SPEC.md of a protocol."""
    if name not in _folders():
        extensions.refuse_missing(name)
        raise ConfigError(f"there is no protocol {name!r}; known: {', '.join(protocols())}")
    return Spec(name, (_folders()[name] / "SPEC.md").read_text("utf-8"))


def _plain(markdown: str) -> str:
    return re.sub(r"[*`]", "", " ".join(markdown.split()))
