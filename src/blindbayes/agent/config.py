"""`site.toml`: settings, where the rows are, policy; with values from files and environment variables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import tomlkit

from blindbayes.agent.approvals.people import PersonRole
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import NAME, convert, read_toml, require_port
from blindbayes.study.settings import annotate, no_none

_NAMED = re.compile(r"\$\{(env|file):([^}]+)\}")
_PREFIX = "BLINDBAYES_SITE__"
_MAX_BYTES = 64 * 1024
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


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


def variable_of(name: str) -> str:
    """Return the variable that overrides a setting, such as `policy.min_rows`."""
    return _PREFIX + name.upper().replace(".", "__")


def _value(text: str) -> Any:
    try:
        return read_toml(f"value = {text}", "a variable")["value"]
    except ConfigError:
        return text


class Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The source of the rows: a path relative to the site's folder, or a database URL with `table`.

    `map` computes columns of the codebook from the table's own. For text files, what is None is inferred from the header.
    `spark` holds settings of the Spark session. `omop` names the schema of an OMOP common data model in the database; then the
    study's codebook declares how its columns come from it.
    """

    source: str
    name: str = "rows"
    table: str | None = None
    extra_columns: str = "refuse"
    delimiter: str | None = None
    quote: str = '"'
    encoding: str | None = None
    decimal: str = "."
    thousands: str = ""
    missing: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    map: dict[str, Any] = {}
    spark: dict[str, Any] = {}
    omop: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError("name under [rows] has at most 40 small letters, digits or dashes, a letter first")
        if self.omop is not None and (self.table is not None or self.map or "://" not in self.source):
            raise ConfigError(
                "with omop under [rows] the study says what is read: source is the URL of a database, without table and map"
            )


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


class ConsoleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on tables in the console: the folder that staff choose from, uploads, previews, database servers."""

    data: str = "data"
    max_upload_mb: int = 1024
    preview_rows: int = 5
    databases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.preview_rows <= 20:
            raise ConfigError("preview_rows under [console] is a number from 0 to 20")
        if not 0 <= self.max_upload_mb <= 1 << 20:
            raise ConfigError("max_upload_mb under [console] is a number from 0 to 1048576")
        for place in self.databases:
            require_port(place, "databases under [console]")


class Notify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Notification of staff when a decision waits: by a webhook, by e-mail, or both."""

    webhook: str | None = None
    webhook_token: str | None = None
    smtp: str | None = None
    smtp_tls: Literal["starttls", "tls", "none"] = "starttls"
    smtp_user: str | None = None
    smtp_password: str | None = None
    mail_from: str | None = None
    mail_to: tuple[str, ...] = ()
    console: str | None = None
    authority: str | None = None
    timeout: float = 10.0

    def __repr__(self) -> str:
        return "Notify(<redacted>)"

    def __post_init__(self) -> None:
        if self.webhook is not None:
            require_endpoint(self.webhook, "notify.webhook")
        if self.smtp is not None:
            require_port(self.smtp, "notify.smtp")
            if not self.mail_to or not all(map(_ADDRESS.fullmatch, (self.mail_from or "", *self.mail_to))):
                raise ConfigError("notify.smtp needs mail_from and mail_to, as addresses such as steward@north.example")
            if self.smtp_tls == "none" and self.smtp.rpartition(":")[0].strip("[]") not in _LOOPBACK:
                raise ConfigError('notify.smtp_tls = "none" is for a mail server on this machine only')
        if not 1 <= self.timeout <= 60:
            raise ConfigError("notify.timeout is a number of seconds from 1 to 60")


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sign-in by the organisation: an OpenID Connect provider, and the roles that its claims give."""

    issuer: str
    client_id: str
    roles: dict[str, PersonRole]
    secret_file: str | None = None
    roles_claim: str = "roles"
    name_claim: str = "name"
    scope: str = "openid profile"
    authority: str | None = None
    max_session_minutes: int = 480
    first_approval_hours: int = 24

    def __post_init__(self) -> None:
        require_endpoint(self.issuer, "issuer under [sign_in]")
        if urlsplit(self.issuer).query or "?" in self.issuer:
            raise ConfigError("issuer under [sign_in] is an address without a query, as in the provider's discovery document")
        if not self.client_id or not self.roles_claim or not self.name_claim:
            raise ConfigError("client_id, roles_claim and name_claim under [sign_in] must not be empty")
        if not self.roles:
            raise ConfigError("[sign_in.roles] maps values of the roles claim to roles: without one nobody could sign in")
        if "openid" not in self.scope.split() or "offline_access" in self.scope.split():
            raise ConfigError("scope under [sign_in] includes openid, and never offline_access: nothing is refreshed")
        if not 1 <= self.max_session_minutes <= 24 * 60:
            raise ConfigError("max_session_minutes under [sign_in] is a number from 1 to 1440")
        if not 1 <= self.first_approval_hours <= 24 * 31:
            raise ConfigError("first_approval_hours under [sign_in] is a number from 1 to 744")


def require_endpoint(url: str, what: str) -> str:
    """Return the address of a provider or webhook. Raises `ConfigError` unless it is HTTPS, or HTTP on this machine."""
    try:
        parts = urlsplit(url)
        host = "" if parts.port == 0 else parts.hostname or ""
        host.encode("idna")  # as the resolver does: an empty label, or one of more than 63 characters
    except ValueError:
        raise ConfigError(f"{what} is not an address") from None
    plain = parts.scheme == "http" and host in _LOOPBACK
    seen = url.isascii() and url.isprintable() and not set(url) & set(' "<>\\^`{|}')
    if not host or not (plain or parts.scheme == "https") or parts.username is not None or parts.fragment or not seen:
        raise ConfigError(f"{what} is an https address without user and fragment (http only on this machine)")
    return url


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
    console: ConsoleSettings = ConsoleSettings()
    sign_in: SignIn | None = None
    ledger: str = "ledger.jsonl"
    journal_quota_mb: int = 4096
    proxy: str | None = None
    min_free_mb: int = 256
    keep_releases_days: int | None = None
    notify: Notify | None = None

    def __post_init__(self) -> None:
        for name in ("listen", "operator", "metrics"):
            if (place := getattr(self, name)) is not None:
                require_port(place, name)
        host = self.operator.rpartition(":")[0].strip("[]")
        if host not in _LOOPBACK:
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
