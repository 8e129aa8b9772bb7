"""What a protocol's SPEC.md says, for reports and pages: its paragraphs and its labels."""

from __future__ import annotations

import importlib.resources
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any

from blindbayes import extensions
from blindbayes.errors import ConfigError
from blindbayes.protocol import registry


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
        return re.sub(r"[*`]", "", " ".join(found.group(1).split())) if found else ""


@cache
def _folders() -> dict[str, Traversable]:
    """Where protocols stand, each in a folder of its own with its SPEC.md."""
    added = {module.rpartition(".")[0] for module in extensions.added(extensions.SCHEMES).values()}
    rooms = [folder for room in (*sorted(added), "blindbayes.protocol") for folder in importlib.resources.files(room).iterdir()]
    listed = [importlib.resources.files(module) for module in registry.known().values()]  # wherever a protocol's folder stands
    return {folder.name: folder for folder in (*rooms, *listed) if (folder / "SPEC.md").is_file()}


def protocols() -> tuple[str, ...]:
    """Every protocol that has a SPEC.md, by name."""
    return tuple(sorted(_folders()))


@cache
def added_labels() -> dict[str, str]:
    """Return what is opened under each label that a SPEC.md describes itself, in plain words."""
    return {label: text for name in protocols() for label, text in read_spec(name).table.get("labels", {}).items()}


def read_spec(name: str) -> Spec:
    """The SPEC.md of a protocol."""
    if name not in _folders():
        extensions.refuse_missing(name)
        raise ConfigError(f"there is no protocol {name!r}; known: {', '.join(protocols())}")
    return Spec(name, (_folders()[name] / "SPEC.md").read_text("utf-8"))
