"""Read the SPEC.md of a protocol: its paragraphs and its labels."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any

from blindbayes import _extensions as extensions
from blindbayes.errors import ConfigError
from blindbayes.protocols import registry


@dataclass(frozen=True, slots=True)
class Spec:
    """The SPEC.md of a protocol."""

    name: str
    text: str

    @property
    def table(self) -> dict[str, Any]:
        """The machine-readable part."""
        return registry.spec_table(self.text)

    @property
    def opened(self) -> tuple[str, ...]:
        """Every label that the protocol opens without noise."""
        return tuple(self.table["opened"])

    @property
    def prose(self) -> str:
        """The text without its machine-readable part."""
        return re.sub(r"```toml\n.*?```\n*", "", self.text, flags=re.DOTALL)

    def paragraph(self, title: str) -> str:
        """Return the plain text under a title, which is a heading or bold at the start of a paragraph; empty if absent."""
        bold = re.search(rf"^\*\*{title}[.,]?\*\*[.,]?\s+(.*?)(?=\n\n|\n```|\Z)", self.prose, flags=re.DOTALL | re.MULTILINE)
        heading = re.search(rf"^## {title}[^\n]*\n+(.*?)(?=\n\n|\Z)", self.prose, flags=re.DOTALL | re.MULTILINE)
        match = bold or heading
        return re.sub(r"[*`]", "", " ".join(match.group(1).split())) if match else ""


@cache
def spec_pages() -> dict[str, str]:
    """Return the text of every SPEC.md by the protocol that its title names."""
    added = {module.rpartition(".")[0] for module in extensions.added(extensions.TASKS).values()}
    added |= {module for module in registry.known().values() if not module.startswith("blindbayes.protocols.")}
    packages = ("blindbayes.protocols", *sorted(added))
    texts = [page.read_text("utf-8") for package in packages for page in _spec_files(importlib.resources.files(package))]
    return {text.partition("\n")[0].removeprefix("# ").split()[0].rstrip(":"): text for text in texts}


def _spec_files(folder: Traversable) -> Iterator[Traversable]:
    for each in folder.iterdir():
        if each.name == "SPEC.md":
            yield each
        elif each.is_dir():
            yield from _spec_files(each)


def protocols() -> tuple[str, ...]:
    """Return the names of all protocols that have a SPEC.md."""
    return tuple(sorted(spec_pages()))


@cache
def added_labels() -> dict[str, str]:
    """Return the descriptions of labels in SPEC.md files, by label."""
    return {label: text for name in protocols() for label, text in read_spec(name).table.get("labels", {}).items()}


def read_spec(name: str) -> Spec:
    """Return the SPEC.md of a protocol."""
    if name not in spec_pages():
        extensions.refuse_missing(name)
        raise ConfigError(f"there is no protocol {name!r}; known: {', '.join(protocols())}")
    return Spec(name, spec_pages()[name])
