"""Public facts of a model in shares: the part that is equal in all its share files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from blindbayes.errors import ConfigError, DataError
from blindbayes.io import typed
from blindbayes.io.untrusted import convert
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup
from blindbayes.protocols.shared_training.columns import ColumnsSetup

Setup = ColumnsSetup | JoinSetup | SharedRowsSetup
_KINDS: dict[str, type[Setup]] = {"columns": ColumnsSetup, "join": JoinSetup, "rows": SharedRowsSetup}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def public_of(setup: Setup) -> dict[str, Any]:
    """Return the facts of a setup as plain builtins."""
    facts: dict[str, Any] = typed.decode(msgspec.msgpack.encode(setup), dict)
    return {"kind": _NAMES[type(setup)], **facts}


def setup_of(public: Mapping[str, Any]) -> Setup:
    """Read a setup from the public facts of a share."""
    kind = _KINDS.get(str(public.get("kind")))
    if kind is None:
        raise DataError("the share file does not say what kind of model it is of; it is damaged, or of another version")
    return convert(dict(public), kind, "the share file")


def columns_of(public: Mapping[str, Any]) -> ColumnsSetup:
    """Read the study over columns from the public facts of a share. For a join it is the study of its training."""
    setup = setup_of(public)
    if isinstance(setup, SharedRowsSetup):
        raise ConfigError("the share is of a model over rows; it has no columns by party")
    return setup.columns if isinstance(setup, JoinSetup) else setup


def join_of_share(public: Mapping[str, Any]) -> JoinSetup:
    """Read the join from the public facts of a share."""
    setup = setup_of(public)
    if not isinstance(setup, JoinSetup):
        raise ConfigError("the share is not of a study whose identifiers do not line up")
    return setup


def rows_of(public: Mapping[str, Any]) -> SharedRowsSetup:
    """Read the study over rows from the public facts of a share."""
    setup = setup_of(public)
    if not isinstance(setup, SharedRowsSetup):
        raise ConfigError("the share is not of a model of rows that several parties hold")
    return setup
