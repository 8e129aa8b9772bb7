"""Extensions by other distributions, declared as entry points in their metadata.

    [project.entry-points."blindbayes.sums"]
    my_sum = "my_package.my_sum"             # a package with `PROTOCOL`, see `protocols.registry`, and a SPEC.md

    [project.entry-points."blindbayes.tasks"]
    my_protocol = "my_package.my_task"       # a module with `TASK`, see `study.tasks.registry`; sibling folders with a
                                             # SPEC.md are protocols

    [project.entry-points."blindbayes.commands"]
    my-command = "my_package.my_command"     # a module with `command`, for the command line

    [project.entry-points."blindbayes.couriers"]
    my-courier = "my_package.my_courier"     # a module with `courier(folder, identity, peers, **options)`, which returns a
                                             # `net.courier.Courier`; [courier] of a site.toml names it

Modules load on first use. Names of the core cannot be replaced. The policy of a new site allows no added protocol until its
staff add it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from blindbayes._lazy import lazy
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = lazy("importlib.metadata")  # takes a fifth of a command's start-up time

SUMS, TASKS = "blindbayes.sums", "blindbayes.tasks"
COMMANDS, COURIERS = "blindbayes.commands", "blindbayes.couriers"

_PAPERS = (
    "audit-smooth",
    "chain_sum",
    "distorted_intersection",
    "noisy_histograms",
    "oblivious_sum",
    "opened_ratio",
    "plan-smooth",
    "private_maximum",
    "reproduce",
    "ring_sum",
    "scalar_product",
    "set_intersection",
    "train-smooth",
)


@cache
def added(group: str) -> dict[str, str]:
    """Return the module of every name that installed distributions add to a group; stale metadata is ignored."""
    offered = {each.name: each.value for each in metadata.entry_points(group=group)}
    return {name: module for name, module in offered.items() if find_spec(module.partition(".")[0])}


def load(group: str, name: str) -> ModuleType:
    """Import the module that an installed package registers under a name; raise `ConfigError` if none does."""
    if name not in (known := added(group)):
        raise ConfigError(f"no installed package adds {name!r} to {group}; known: {', '.join(sorted(known)) or 'none'}")
    return import_module(known[name])


def refuse_missing(name: str) -> None:
    """Raise for a name that the missing extra `papers` would add, with the command that installs it."""
    if name in _PAPERS:
        raise ConfigError(f"{name} needs an extra: pip install 'blindbayes[papers]'")
