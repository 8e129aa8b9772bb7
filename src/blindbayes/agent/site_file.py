"""Change settings in site.toml for people without an editor. Comments and order stay; the file is replaced as a whole.

A value that staff typed must not contain `${`: when the file is read, `${file:...}` and `${env:...}` are replaced by contents
of files and variables, keys included.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

from blindbayes.agent.config import SiteConfig, expanded, overridden, variable_of
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes.io.files import write_whole
from blindbayes.io.untrusted import convert, read_limited, read_toml

_MAX_BYTES = 1 << 20
_KEY = Coins.system().bytes(32)  # the file may hold a password: its plain hash would let a reader of the page try guesses
_ONE_WRITER = threading.Lock()


def version_of(folder: Path) -> str:
    """Return a keyed digest of site.toml, so that a form can detect a change of the file since it was shown."""
    return _digest(read_limited(folder / "site.toml", _MAX_BYTES))


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, key=_KEY, digest_size=16).hexdigest()


def raw_settings(folder: Path) -> dict[str, Any]:
    """Return the settings as they are written, with references in place of the secrets that they name."""
    return read_toml(read_limited(folder / "site.toml", _MAX_BYTES), "site.toml")


def require_plain(value: Any) -> None:
    """Raise `ConfigError` if a value typed by staff contains a reference to a file or a variable."""
    if isinstance(value, str) and "${" in value:
        raise ConfigError("a setting from the console must not contain ${: references to files and variables stay in site.toml")
    if isinstance(value, Mapping):
        for each in (*value, *value.values()):
            require_plain(each)
    elif isinstance(value, list | tuple):
        for each in value:
            require_plain(each)


def change_settings(folder: Path, changes: Mapping[str, Any], version: str) -> list[str]:
    """Set `table.key` to values in site.toml, or remove it where the value is None. Return the names that changed.

    Raises `ConfigError`, with the file unchanged, if the file is no longer the one with this version, if a variable overrides
    a setting, or if the result is not a valid site.toml. Of two changes of one version the second raises.
    """
    with _ONE_WRITER:
        return _change(folder, changes, version)


def _change(folder: Path, changes: Mapping[str, Any], version: str) -> list[str]:
    path = folder / "site.toml"
    text = read_limited(path, _MAX_BYTES)
    before = read_toml(text, path.name)
    if _digest(text) != version:
        raise ConfigError("site.toml was changed since this page was loaded: load the page again")
    document = tomlkit.parse(text.decode())
    for name, value in changes.items():
        if (variable := variable_of(name)) in os.environ:
            raise ConfigError(f"the variable {variable} of the agent sets {name}: the operator changes it there")
        table, _, key = name.rpartition(".")
        if table and table not in document:
            document[table] = tomlkit.table()
        inner: Any = document[table] if table else document
        if value is None:
            inner.pop(key, None)
        elif value != inner.get(key):
            inner[key] = value
    new = tomlkit.dumps(document).encode()
    after = read_toml(new, path.name)
    convert(expanded(overridden(read_toml(new, path.name)), folder), SiteConfig, path.name)
    changed = _changed(before, after)
    if changed:
        write_whole(path, new)
    return changed


def _changed(before: Any, after: Any, name: str = "") -> list[str]:
    """Return the names of the settings that differ, to the depth of `rows.map.sex`."""
    if (not isinstance(before, dict) and not isinstance(after, dict)) or name.count(".") == 2:
        return [] if before == after else [name]
    old, new = (each if isinstance(each, dict) else {} for each in (before, after))
    names = dict.fromkeys((*old, *new))
    return [each for key in names for each in _changed(old.get(key), new.get(key), f"{name}.{key}" if name else str(key))]
