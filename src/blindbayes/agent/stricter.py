"""Settings that staff may make stricter in the console. To loosen one, they edit site.toml."""

from __future__ import annotations

from typing import Any

from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import change_settings
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import ConfigError
from blindbayes.study.form import typed_number
from blindbayes.study.settings import label_of

_UP = ("min_parties", "min_rows", "min_overlap", "min_audit_rate", "min_cell", "min_cell_of_sums", "min_colluders", "approvers")
_DOWN = (
    "max_epsilon_per_run",
    "max_delta_per_run",
    "max_runs_per_day",
    "max_running",
    "max_idle_joins_per_day",
    "max_queries",
    "max_overlap_bits_per_day",
)
_OFF = (
    "exact_sums",
    "changed_data",
    "reveal_matches",
    "weaker_options",
    "failed_outputs",
    "announce_decisions",
)
_ON = ("noise_in_shares", "require_all_signatures")
_FEWER = ("protocols",)
_LESS = {"site_figures": ("none", "spread", "each")}  # from strict to loose
_CONSOLE_DOWN = ("preview_rows", "max_upload_mb")
STRICTER = {
    **{f"policy.{name}": "higher" for name in _UP},
    **{f"policy.{name}": "lower" for name in _DOWN},
    **{f"policy.{name}": "no" for name in _OFF},
    **{f"policy.{name}": "yes" for name in _ON},
    **{f"policy.{name}": "fewer" for name in _FEWER},
    **{f"policy.{name}": "less" for name in _LESS},
    **{f"console.{name}": "lower" for name in _CONSOLE_DOWN},
    "min_free_mb": "higher",
}
"""Every setting that can be made stricter, and how."""


def present_value(home: SiteFolder, name: str) -> Any:
    """Return the value of a setting that can be made stricter."""
    if name not in STRICTER:
        raise ConfigError("this setting is changed in site.toml only, by the operator")
    return _value_of(home.config, name)


def _value_of(config: SiteConfig, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def make_stricter(home: SiteFolder, name: str, text: str, version: str, who: str) -> list[str]:
    """Write a stricter value of a setting to site.toml, and an entry to the audit log. Return what changed.

    Raises `ConfigError` if the value is not stricter than the present one. The caller reloads the agent's settings.
    """
    present = present_value(home, name)
    written = _value_of(SiteConfig.read(home.folder / "site.toml"), name)  # it may be edited, and not in force yet
    value = _parsed(name, text, present)
    if not all(_is_stricter(name, each, value) for each in (present, written)):
        raise ConfigError(
            f"{label_of(name)}: it can only become stricter here ({STRICTER[name]}); to loosen it, the person who runs the "
            "agent edits site.toml"
        )
    if name == "policy.approvers":
        home.people.require_eyes(value)
    changed = change_settings(home.folder, {name: list(value) if isinstance(value, tuple) else value}, version)
    if changed:
        home.audit.append("setting changed", keys=changed, who=who)
    return changed


def _parsed(name: str, text: str, present: Any) -> Any:
    words = text.strip()
    if isinstance(present, bool):
        if words.lower() not in ("yes", "no", "true", "false"):
            raise ConfigError("write yes or no")
        return words.lower() in ("yes", "true")
    if isinstance(present, tuple):
        return tuple(filter(None, map(str.strip, words.split(","))))
    if isinstance(present, str):
        return words
    return typed_number(words, label_of(name), type(present))


def _is_stricter(name: str, present: Any, value: Any) -> bool:
    how = STRICTER[name]
    if how == "less":
        order = _LESS[name.rpartition(".")[2]]
        return value in order[: order.index(present)]
    if how == "fewer":
        return set(value) < set(present)
    if how in ("yes", "no"):
        return value is (how == "yes") and value != present
    return bool(value >= 0 and (value > present if how == "higher" else value < present))
