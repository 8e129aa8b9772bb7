"""`site.toml`: settings, where the rows are, policy; with values from files and environment variables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import tomlkit

from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import NAME, convert, read_toml, require_port
from blindbayes.study.settings import annotate, no_none

_NAMED = re.compile(r"\$\{(env|file):([^}]+)\}")
_PREFIX = "BLINDBAYES_SITE__"
_MAX_BYTES = 64 * 1024


def expanded(value: Any, folder: Path) -> Any:
    """Replace every `${env:..}` and `${file:..}` in a table; the last line break of a file is dropped."""
    if isinstance(value, dict):
        return {name: expanded(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [expanded(each, folder) for each in value]
    return _NAMED.sub(lambda match: _named(match[1], match[2], folder), value) if isinstance(value, str) else value


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
    """Override settings by variables such as BLINDBAYES_SITE__POLICY__MIN_ROWS: a TOML value, or text."""
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


class Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The source of the rows: a path relative to the site's folder, or a database URL with `table`.

    `map` computes columns of the codebook from the table's own. For text files, what is None is inferred from the header.
    `spark` holds settings of the Spark session.
    """

    source: str
    name: str = "rows"
    table: str | None = None
    extra_columns: str = "refuse"
    delimiter: str | None = None
    quote: str = '"'
    encoding: str | None = None
    decimal: str = "."
    names: tuple[str, ...] | None = None
    map: dict[str, Any] = {}
    spark: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError("name under [rows] has at most 40 small letters, digits or dashes, a letter first")


class RelayUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A relay: its card, and the sites that are reached through it."""

    card: str
    sites: tuple[str, ...]


class Carrier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine that carries the frames: its socket, and the engine's names of the other sites."""

    socket: str = "carrier.sock"
    latency: Literal["milliseconds", "seconds"] = "seconds"
    sites: dict[str, str] = {}


class AddedCourier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A courier of an installed package (`_extensions`), and its options."""

    name: str
    options: dict[str, Any] = {}


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PEM files: the authority's certificates, and the chain for this site's key (`blindbayes site request`)."""

    authority: str
    certificate: str


class SiteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`site.toml`."""

    listen: str | None = None
    operator: str = "127.0.0.1:7441"
    metrics: str | None = None
    rows: Rows | None = None
    relay: RelayUse | None = None
    carrier: Carrier | None = None
    courier: AddedCourier | None = None
    tls: Tls | None = None
    policy: Policy = Policy()
    ledger: str = "ledger.jsonl"
    journal_quota_mb: int = 4096
    proxy: str | None = None
    min_free_mb: int = 256
    keep_releases_days: int | None = None

    def __post_init__(self) -> None:
        for name in ("listen", "operator", "metrics"):
            if (place := getattr(self, name)) is not None:
                require_port(place, name)
        host = self.operator.rpartition(":")[0].strip("[]")
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigError("the operator's port is for this machine only: use 127.0.0.1")
        if self.proxy is not None:
            require_port(self.proxy.removeprefix("http://"), "proxy")
        others = (self.listen, self.relay, self.tls, self.proxy, self.courier)
        if self.carrier is not None and others != (None,) * 5:
            raise ConfigError("with [carrier] an engine carries all frames: leave out listen, proxy, [relay], [tls], [courier]")
        if self.courier is not None and others[:4] != (None,) * 4:
            raise ConfigError("with [courier] a package carries all frames: leave out listen, proxy, [relay] and [tls]")

    @classmethod
    def read(cls, path: Path) -> SiteConfig:
        try:
            table = overridden(read_toml(path.read_bytes(), path.name))
            return convert(expanded(table, path.parent), cls, path.name)
        except FileNotFoundError:
            raise ConfigError(
                f"there is no {path.name}; name the site's folder with --config, or make a site with `blindbayes site init`"
            ) from None

    def to_toml(self, name: str) -> bytes:
        """Return the annotated file of a new site."""
        fields = no_none(msgspec.to_builtins(self))
        document = tomlkit.document()
        document.add(tomlkit.comment(f"site {name}; see `blindbayes site --help`"))
        for key in sorted(fields, key=lambda key: isinstance(fields[key], dict)):
            document[key] = fields[key]
        return tomlkit.dumps(annotate(document, "site")).encode()
