"""A site's folder: configuration, keys, pins, approvals, runs, audit log.

site.toml           settings, where the rows are, policy
card.toml keys/     the site's identity             peers/      pinned cards of other sites
people.toml         who may decide                  refused/    studies that staff refused
approved/<hash>     studies that staff approved     runs/<id>/  journals of open runs, outcomes of ended ones
audit.log           what happened                   releases/   results of runs
ledger.jsonl        privacy budget                  increments/ statistics and totals that later runs may add to
data/               tables that staff choose from   secrets/    passwords of databases, by file name
shares/<run>.share  this site's shares of models over columns, by training run; never part of a release
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from blindbayes.agent.approvals.decisions import Approvals, Decisions
from blindbayes.agent.approvals.people import People
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.runs.folders import RunFolders
from blindbayes.agent.store.data_folder import DataFolder
from blindbayes.agent.store.increments import IncrementStore
from blindbayes.agent.store.shares import ShareFolder
from blindbayes.agent.store.tables import Tables
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.charges import RunLedger
from blindbayes.disclosure.checks import Records
from blindbayes.disclosure.history import History
from blindbayes.errors import ConfigError, LedgerError
from blindbayes.io.files import make_private_folder, sync, write_whole
from blindbayes.net.identity import Card, Identity, pin, pinned, read_card, require_name
from blindbayes.study.file import StudyFile

try:
    import fcntl
except ImportError as error:
    raise ConfigError("a site needs file locks: run it on Linux or macOS (the library itself runs here)") from error


@contextlib.contextmanager
def sole_agent(folder: Path) -> Iterator[None]:
    """Lock the folder for one agent: two would answer for one site with two memories."""
    try:
        handle = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"agent.lock cannot be opened ({error.strerror}): make the site's folder writable") from None
    try:
        for left in reversed(range(_LOCK_TRIES)):  # a command that looks whether an agent runs has the lock for an instant
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if not left:
                    raise ConfigError("an agent of this site is running already") from None
                time.sleep(0.02)
            else:
                break
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)


def running_agent(folder: Path) -> int | None:
    """Return the process number of the agent that runs for a folder, or None if none does."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(folder / "agent.lock", os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # locked: the number in it is that of a living agent
            return int(os.pread(handle, 20, 0))
        finally:
            os.close(handle)
    return None


def ask_to_reload(folder: Path) -> bool:
    """Signal the agent of a folder to apply changed settings and pins. Returns False if none runs."""
    if (process := running_agent(folder)) is None:
        return False
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGHUP)
        return True
    return False


def _require_owner(folder: Path) -> None:
    """Raise for root on another account's folder: the agent of that account could not read what root writes there."""
    if os.geteuid() == 0 and folder.is_dir() and (owner := folder.stat().st_uid) != 0:
        raise ConfigError(
            f"the site's folder belongs to another account (number {owner}), whose agent could not read what root writes: run "
            f"the command as that account, for example with sudo -u '#{owner}'"
        )


_LOCK_TRIES = 50
_AT_START = ("listen", "proxy", "operator", "relay", "carrier", "courier", "tls", "ledger")  # read once


@dataclass(slots=True)
class SiteFolder:
    """One site's folder, with an object for each part of it."""

    folder: Path
    config: SiteConfig
    audit: AuditLog = field(init=False)
    ledger: RunLedger = field(init=False)
    approvals: Approvals = field(init=False)
    people: People = field(init=False)
    decisions: Decisions = field(init=False)
    history: History = field(init=False)
    increments: IncrementStore = field(init=False)
    runs: RunFolders = field(init=False)
    shares: ShareFolder = field(init=False)
    tables: Tables = field(init=False)
    promised: dict[tuple[str, str], Callable[[], None]] = field(init=False, repr=False, default_factory=dict)  # not paid yet
    models: dict[tuple[str, str], Any] = field(init=False, repr=False, default_factory=dict)  # of totals, read last
    deciding: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.audit = AuditLog(self.folder / "audit.log")
        self.ledger = RunLedger(self.folder / self.config.ledger)
        self.approvals = Approvals(self.folder / "approved", self.audit)
        self.people = People(self.folder / "people.toml", self.audit)
        self.decisions = Decisions(self.folder / "refused", self.config, self.audit, self.approvals, self.people)
        self.history = History(self.audit)
        self.increments = IncrementStore(self.folder / "increments")
        self.runs = RunFolders(self.folder / "runs")
        self.shares = ShareFolder(self.folder / "shares", self.audit, self.history)
        self.tables = Tables(self.folder, self.config.rows)

    @classmethod
    def open(cls, config_path: Path) -> SiteFolder:
        """Open the folder around a site.toml. Raises `LedgerError` if it has no audit log, or not the site's own.

        Without its log a site would forget what it revealed.
        """
        path = config_path / "site.toml" if config_path.is_dir() else config_path
        _require_owner(path.parent)
        home = cls(path.parent.resolve(), SiteConfig.read(path))
        try:
            with home.audit.path.open("rb") as file:
                begins = b'"event": "site made"' in file.readline(1 << 16)
        except FileNotFoundError:
            begins = False
        if not begins:
            raise LedgerError(
                "audit.log is missing, or does not begin with this site's making: bring back the newest copy, or the whole "
                "site with `blindbayes site restore`"
            )
        return home

    @classmethod
    def create(
        cls,
        folder: Path,
        name: str,
        *,
        config: SiteConfig,
        address: str = "",
        passphrase: str | None = None,
        epsilon: str = "10",
        delta: str = "0.00001",
        succeeds: SiteFolder | None = None,
    ) -> tuple[SiteFolder, Identity]:
        """Make a site: keys, card, site.toml, and a ledger with its budget; or the ledger and log of a site it succeeds.

        The site that it succeeds is a site no longer: its site.toml is renamed before this one has its own. Its people, pins,
        tables and passwords go along, and the text of its site.toml, in which references to secrets stay references; what was
        approved under the old identity does not.
        """
        require_name(name)
        RunLedger.require_budget(epsilon, delta)  # before keys are made: what is refused leaves nothing behind
        with contextlib.ExitStack() as locks:
            if succeeds is not None:
                locks.enter_context(sole_agent(succeeds.folder))
            make_private_folder(folder)
            identity = Identity.create(folder, name, address=address, passphrase=passphrase)
            home, facts = cls(folder.resolve(), config), {"identity": identity.card.identity.hex()}
            if succeeds is None:
                RunLedger.create(home.ledger.path, epsilon=epsilon, delta=delta, owner=name)
            else:
                facts["succeeds"] = read_card(succeeds.folder / "card.toml").identity.hex()
                with succeeds.audit.locked() as log, succeeds.ledger.locked() as spent:
                    write_whole(home.audit.path, log, replace=False)
                    write_whole(home.ledger.path, spent, replace=False)
                    if succeeds.people.path.exists():
                        write_whole(home.people.path, succeeds.people.path.read_bytes(), replace=False)
                    for card in succeeds.peers().values():
                        pin(home.folder, card)
                    (succeeds.folder / "site.toml").rename(succeeds.folder / "site.toml.succeeded")
                    sync(succeeds.folder)
            home.audit.append("site made", site=name, fingerprint=identity.card.words, **facts)
            text = config.to_toml(name) if succeeds is None else (succeeds.folder / "site.toml.succeeded").read_bytes()
            write_whole(folder / "site.toml", text, replace=False)  # makes the folder a site
            if succeeds is not None:
                for place in ("data", "secrets"):  # the settings name files in them
                    if (succeeds.folder / place).is_dir():
                        shutil.move(succeeds.folder / place, home.folder / place)
        return home, identity

    def reload(self) -> list[str]:
        """Apply what site.toml says now, where that needs no restart. Return the settings that do."""
        new, old = SiteConfig.read(self.folder / "site.toml"), self.config
        later = [name for name in _AT_START if getattr(new, name) != getattr(old, name)]
        self.config = msgspec.structs.replace(new, **{name: getattr(old, name) for name in _AT_START})
        self.decisions.config = self.config
        self.tables = Tables(self.folder, self.config.rows)
        return later

    def note_policy(self, who: str) -> list[str]:
        """Write the policy and the table's name into the log if they changed. Return what changed."""
        rules = [f"{name} = {value!r}" for name, value in sorted(msgspec.structs.asdict(self.config.policy).items())]
        if self.config.rows is not None:
            rules.append(f"[rows] name = {self.config.rows.name!r}")
        last = self.audit.where("event", "policy")
        changed = sorted(set(rules) - set(last[-1]["rules"] if last else ()))
        if not last or last[-1]["rules"] != rules:
            self.audit.append("policy", rules=rules, changed=changed if last else [], who=who)
        return changed if last else []

    def peers(self) -> dict[str, Card]:
        """Return the cards of pinned sites, by name."""
        return pinned(self.folder)

    def pin(self, card: Card, *, replace: bool = False, who: str | None = None) -> None:
        """Trust a card whose fingerprint people have compared."""
        by = self.people.require("manage", who)
        pin(self.folder, card, replace=replace)
        facts = {"fingerprint": card.words, "identity": card.identity.hex()}
        self.audit.append("pinned", site=card.name, **facts, who=by)

    def relay(self) -> Card | None:
        if self.config.relay is None:
            return None
        return read_card(self.folder / self.config.relay.card)

    def require_space(self) -> None:
        """Raise if the disk is nearly full: a run that cannot be written is burned, and may have been paid for."""
        if shutil.disk_usage(self.folder).free < self.config.min_free_mb * 1024**2:
            raise ConfigError(
                f"less than {self.config.min_free_mb} MB are free for the site's folder: free some space and start the run "
                "again, or lower min_free_mb in site.toml"
            )

    def remove_old_releases(self, now: float) -> list[str]:
        """Remove releases older than `keep_releases_days`. Return their runs."""
        days, gone = self.config.keep_releases_days, list[str]()
        if days is None:
            return gone
        for path in sorted((self.folder / "releases").glob("*")):
            if path.is_dir() and not path.is_symlink() and path.stat().st_mtime < now - days * 86400:
                self.audit.append("release removed", run=path.name)
                shutil.rmtree(path)
                gone.append(path.name)
        return gone

    @property
    def data(self) -> DataFolder:
        """The folder of tables that the console shows."""
        settings = self.config.console
        return DataFolder(self.folder / settings.data, settings.max_upload_mb << 20, self.config.min_free_mb << 20)

    def records(self, study: StudyFile) -> Records:
        """Return what the checks of `disclosure` are asked with, now."""
        names = {card.identity.hex(): name for name, card in self.peers().items()}
        approval = self.approvals.approved_runs(study)
        return Records(self.config.policy, self.history, self.ledger, approval, time.time(), names)
