"""What other distributions add: each names it in its own metadata, under a group of entry points of ours.

    [project.entry-points."blindbayes.sums"]
    my_sum = "my_package.my_sum"             # the package offers `PROTOCOL`, see `protocol.registry`, and has a SPEC.md

    [project.entry-points."blindbayes.schemes"]
    my_protocol = "my_package.my_scheme"     # the module offers `SCHEME`, see `study.schemes`; the folders beside it that
                                             # have a SPEC.md are protocols

    [project.entry-points."blindbayes.commands"]
    my-command = "my_package.my_command"     # the module offers `command`, for the command line

    [project.entry-points."blindbayes.couriers"]
    my-courier = "my_package.my_courier"     # the module offers `courier(folder, identity, peers, **options)`, which makes a
                                             # `transport.courier.Courier`; [courier] of a site.toml names it

A module is loaded when it is asked for. A name of the core's own is the core's; a new site's policy allows no added protocol
until its people say so.
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
    metadata = lazy("importlib.metadata")  # a fifth of the time that a command takes to start

SUMS, SCHEMES = "blindbayes.sums", "blindbayes.schemes"
COMMANDS, COURIERS = "blindbayes.commands", "blindbayes.couriers"

_OF_PAPERS = (
    "chain_sum",
    "distorted_intersection",
    "noisy_histograms",
    "oblivious_sum",
    "opened_ratio",
    "private_maximum",
    "reproduce",
    "ring_sum",
    "scalar_product",
    "set_intersection",
    "train-smooth",
)


@cache
def added(group: str) -> dict[str, str]:
    """What the installed distributions add to a group: the module of every name. Metadata that a removed package left behind
    add nothing."""
    offered = {each.name: each.value for each in metadata.entry_points(group=group)}
    return {name: module for name, module in offered.items() if find_spec(module.partition(".")[0])}


def load(group: str, name: str) -> ModuleType:
    """The module that offers it. Raises `ConfigError` if none does."""
    if name not in (known := added(group)):
        raise ConfigError(f"no installed package adds {name!r} to {group}; known: {', '.join(sorted(known)) or 'none'}")
    return import_module(known[name])


def refuse_missing(name: str) -> None:
    """Refuse what the missing extra `papers` would add, with the command that installs it."""
    if name in _OF_PAPERS:
        raise ConfigError(f"{name} needs an extra: pip install 'blindbayes[papers]'")
