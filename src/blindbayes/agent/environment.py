"""Settings and secrets from the environment: `${env:NAME}` and `${file:PATH}` in site.toml, and BLINDBAYES_SITE__* over it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_toml

_NAMED = re.compile(r"\$\{(env|file):([^}]+)\}")
_PREFIX = "BLINDBAYES_SITE__"
_MAX_BYTES = 64 * 1024


def expanded(value: Any, folder: Path) -> Any:
    """The same table with every `${env:..}` and `${file:..}` replaced; a file's last line break is left out."""
    if isinstance(value, dict):
        return {name: expanded(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [expanded(each, folder) for each in value]
    return _NAMED.sub(lambda found: _named(found[1], found[2], folder), value) if isinstance(value, str) else value


def _named(kind: str, name: str, folder: Path) -> str:
    if kind == "env":
        if name not in os.environ:
            raise ConfigError(f"site.toml takes a setting from the variable {name}, which is not set")
        return os.environ[name]
    try:
        with (folder / name).open("rb") as file:
            content = file.read(_MAX_BYTES)
        return content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"site.toml takes a setting from the file {name}, which cannot be read") from None


def overridden(table: dict[str, Any]) -> dict[str, Any]:
    """The table with what BLINDBAYES_SITE__LISTEN, BLINDBAYES_SITE__POLICY__MIN_ROWS and so on say: a TOML value, or a text."""
    for variable in sorted(name for name in os.environ if name.startswith(_PREFIX)):
        *above, last = variable.removeprefix(_PREFIX).lower().split("__")
        inner = table
        for name in above:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{variable} names a table that site.toml does not have")
        inner[last] = _value(os.environ[variable])
    return table


def _value(text: str) -> Any:
    try:
        return read_toml(f"value = {text}", "a variable")["value"]
    except ConfigError:
        return text
