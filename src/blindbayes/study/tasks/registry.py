"""Task classes by the name of their protocol; each module is loaded when its protocol is asked for.

A module listed here offers `TASK`, a `StudyTask` class, or `task_class(name)` if it serves several protocols. Code that needs
to know something about a protocol (drivers, policy, courier, command line, reports) asks the task class and does not compare
names. A protocol that sums vectors is added in `protocols.registry` and needs nothing else. Other distributions add theirs by
entry points (`_extensions`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from blindbayes import _extensions as extensions
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.io import typed
from blindbayes.protocols import registry

if TYPE_CHECKING:
    from blindbayes.study.agreement import Agreement
    from blindbayes.study.tasks.task import StudyTask
    from blindbayes.study.tasks.traits import Partition

SUMS = "blindbayes.study.tasks.sums"
OTHERS = {
    "private_ratio": "blindbayes.study.tasks.ratio",
    "class_sums": "blindbayes.study.tasks.aligned",
    "joined_sums": "blindbayes.study.tasks.joined",
}


def own_names() -> tuple[str, ...]:
    """Return the protocols of this distribution."""
    return (*registry.ROWS, *OTHERS)


def names() -> tuple[str, ...]:
    """Return every protocol that a study may name."""
    return tuple(dict.fromkeys((*own_names(), *registry.known(), *extensions.added(extensions.TASKS))))


def task_class(name: str) -> type[StudyTask]:
    """Return the task class of a protocol. Raises `ConfigError` for an unknown one."""
    if name in OTHERS or name in registry.known():
        module = import_module(OTHERS.get(name, SUMS))
    elif name in names():
        module = extensions.load(extensions.TASKS, name)
    else:
        extensions.refuse_missing(name)
        raise ConfigError(f"there is no protocol {name!r}; known: {', '.join(names())}")
    known: type[StudyTask] = module.TASK if hasattr(module, "TASK") else module.task_class(name)
    return known


def known(partition: Partition) -> tuple[str, ...]:
    return tuple(name for name in names() if partition in task_class(name).partitions)


def parse_params(kind: type[msgspec.Struct], options: Mapping[str, Any]) -> msgspec.Struct:
    """Return a study's options, typed. Raises `ConfigError` for a name or a value that does not fit."""
    fields = [each.name for each in msgspec.structs.fields(kind)]
    if unknown := sorted(set(options) - set(fields)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(sorted(fields)) or 'none'}")
    try:
        return typed.convert(dict(options), kind, strict=True)
    except msgspec.ValidationError as cause:
        if isinstance(cause.__cause__, ConfigError | PrivacyError):
            raise cause.__cause__ from None
        name = str(cause).rpartition("`$.")[2].strip("`").partition("[")[0]
        problem = PrivacyError if name.endswith("epsilon") else ConfigError
        minimum = re.search(r">= (\d+)", str(cause))
        raise problem(
            f"the option {name} is {_describe_kind(kind, name)}" + (f", at least {minimum[1]}" if minimum else "")
        ) from None


def _describe_kind(kind: type[msgspec.Struct], name: str) -> str:
    hint = get_type_hints(kind).get(name)
    kinds = [each for each in get_args(hint) or (hint,) if each is not type(None)]
    if get_origin(hint) is Literal or (len(kinds) == 1 and get_origin(kinds[0]) is Literal):
        values = get_args(hint) if get_origin(hint) is Literal else get_args(kinds[0])
        return f"one of {', '.join(map(str, values))}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words.get(kinds[0], "as the protocol's page says")


def default_hosts(agreement: Agreement) -> dict[str, str]:
    """Return a host for every role that no contributor fills: a party without rows if there is one, else the first party.

    Roles that the protocol wants apart get different hosts.
    """
    contributors, task = set(agreement.contributors), agreement.task
    order = sorted(agreement.names, key=lambda party: party in contributors)
    hosts: dict[str, str] = {}
    for role in task.roles:
        if role not in contributors:
            taken = {hosts[other] for pair in task.apart if role in pair for other in pair if other in hosts}
            hosts[role] = next((party for party in order if party not in taken), order[0])
    return hosts
