"""The ways to run a study, by the name of their protocol; each is known to one module, which is loaded when it is asked for.

A module listed here offers `SCHEME`, an object that fulfils `Scheme`; or `scheme(name)`, if it knows several. Whoever needs to
know something about a protocol (drivers, policy, courier, command line, wizard, reports) asks the scheme; nobody else compares
a protocol's name. A protocol that sums vectors is added in `protocol.registry`, and is a way to run a study by that alone.
Other distributions add theirs by `extensions`: those that only a paper needs come with blindbayes-papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args, get_origin, get_type_hints

import msgspec

from blindbayes import _extensions as extensions
from blindbayes.disclosure.value import Exposure
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols import registry
from blindbayes.study.agreement import Agreement

if TYPE_CHECKING:
    from blindbayes.study.study import Study

Partition = Literal["rows", "columns"]

SUMS = "blindbayes.study.tasks.sums"
OTHERS = {
    "private_ratio": "blindbayes.study.tasks.ratio",
    "class_sums": "blindbayes.study.tasks.aligned",
    "joined_sums": "blindbayes.study.tasks.joined",
}


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A protocol without options."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What anybody may ask about a way to run a study, whatever the study says."""

    partitions: tuple[Partition, ...]
    line: str  # who learns what, in one line, for people who choose
    aligned: bool = True  # columns: whether row i of every party is the same entity
    between_sites: bool = True  # False: in one process only
    few_rounds: bool = False  # rounds grow neither with parties nor with columns or rows: a courier of seconds will do
    hub: str = ""  # the one role that all others speak with, and with nobody else; none if others speak with each other
    may_lose: bool = False  # a result may be opened without everybody
    shares: bool = False  # nobody gets the model: it stays in shares, and a classification is a run of its own
    allowed: bool = True  # a new site's policy allows it
    offered: bool = True  # the wizard names it
    texts: bool = False  # features may be text
    weighs: bool = False  # classes may be weighed against each other
    small_cells: bool = False  # noisy counts below `min_cell` may be published as 0
    randomises: bool = False  # the class holder may randomise its labels (`label_epsilon`)
    sums: bool = False  # the sites' vectors are added up, and the sum is opened
    living: bool = False  # sites may come and go: the roster is signed anew, the study stays
    goes_on: bool = False  # a run may add to an earlier result and take rows back, and in one process meet faults
    leaves: tuple[str, ...] = ()  # what leaves a site, line by line


class Scheme(Protocol):
    """One way to run a study. What has a body here is the usual answer: everybody brings rows, and everybody is needed."""

    name: str
    facts: Facts
    params: type[msgspec.Struct]  # its options, typed, each with its meaning

    def check(self, study: Study) -> None:
        """Refuse what can be refused before the parties are known."""

    def variant(self, study: Study) -> Scheme:
        """A protocol may run studies in more than one way: the one for this study."""
        return self

    def quorum(self, parties: int) -> int | None:
        """The fewest contributors whose result may be opened, where a study does not say; None: everybody."""
        return None

    def seats(self, agreement: Agreement) -> tuple[str, ...]:
        """Every role: the contributors under their own names, then the others."""
        return agreement.contributors

    def learners(self, agreement: Agreement) -> tuple[str, ...]:
        """The roles that learn the result of a run, or keep a share of it each."""
        return agreement.contributors

    def agree(self, agreement: Agreement) -> Any:
        """The public facts of the protocol, or an error: before people sign."""

    def require_runnable(self, agreement: Agreement) -> None:
        """Refuse, before people say yes, what the roles would refuse in their first step."""
        agreement.public  # noqa: B018 - refused there

    def apart(self) -> tuple[tuple[str, ...], ...]:
        """Roles that no one site may fill together."""
        return ()

    def exposure(self, agreement: Agreement) -> Exposure:
        """What a run would open, for a policy."""

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        """What the study says, fact by fact, for people and machines."""

    def told(self, agreement: Agreement) -> list[str]:
        """What follows from the study, in a few lines for who wrote it."""

    def meet(self, study: Study, sites: Mapping[str, Any]) -> Agreement:
        """What parties in one process agree on, seen from their tables."""
        return Agreement(study, study.sha256, tuple(sites), tuple(sites))

    def job(self, agreement: Agreement, site: Any, run_id: str) -> Any:
        """What a run computes at one site: a `scheme.job.Job`."""

    def result(self, agreement: Agreement, outcome: Any, **more: Any) -> Any:
        """What the roles that ended here learned, with report, statement and files."""

    def dry_run(self, agreement: Agreement, site: Any) -> tuple[dict[str, Any], list[str]]:
        """What would leave a site: facts, and lines for people. Reads the rows to see that they fit; nothing leaves."""


def own_names() -> tuple[str, ...]:
    """The protocols of this distribution."""
    return (*registry.ROWS, *OTHERS)


def names() -> tuple[str, ...]:
    """Every protocol that a study may name."""
    return tuple(dict.fromkeys((*own_names(), *registry.known(), *extensions.added(extensions.SCHEMES))))


def scheme(name: str) -> Scheme:
    """The way to run a study by that protocol. Raises `ConfigError` for an unknown one."""
    if name in OTHERS or name in registry.known():
        module = import_module(OTHERS.get(name, SUMS))
    elif name in names():
        module = extensions.load(extensions.SCHEMES, name)
    else:
        extensions.refuse_missing(name)
        raise ConfigError(f"there is no protocol {name!r}; known: {', '.join(names())}")
    found: Scheme = module.SCHEME if hasattr(module, "SCHEME") else module.scheme(name)
    return found


def known(partition: Partition, **facts: Any) -> tuple[str, ...]:
    """The protocols for a partition whose facts are these."""
    found = ((name, scheme(name).facts) for name in names())
    return tuple(
        name
        for name, its in found
        if partition in its.partitions and all(getattr(its, fact) == value for fact, value in facts.items())
    )


def params_of(kind: type[msgspec.Struct], options: Mapping[str, Any]) -> msgspec.Struct:
    """A study's options, typed. Raises `ConfigError` for a name or a value that does not fit."""
    fields = [each.name for each in msgspec.structs.fields(kind)]
    if unknown := sorted(set(options) - set(fields)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(sorted(fields)) or 'none'}")
    try:
        return msgspec.convert(dict(options), kind, strict=True)
    except msgspec.ValidationError as cause:
        if isinstance(cause.__cause__, ConfigError | PrivacyError):
            raise cause.__cause__ from None
        name = str(cause).rpartition("`$.")[2].strip("`").partition("[")[0]
        problem = PrivacyError if name.endswith("epsilon") else ConfigError
        raise problem(f"the option {name} is {_describe_kind(kind, name)}") from None


def _describe_kind(kind: type[msgspec.Struct], name: str) -> str:
    """What may stand in a field, in words."""
    found = get_type_hints(kind).get(name)
    kinds = [each for each in get_args(found) or (found,) if each is not type(None)]
    if get_origin(found) is Literal or (len(kinds) == 1 and get_origin(kinds[0]) is Literal):
        values = get_args(found) if get_origin(found) is Literal else get_args(kinds[0])
        return f"one of {', '.join(map(str, values))}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return words.get(kinds[0], "as the protocol's page says")


def share_of(parties: int, share: Fraction) -> int:
    """That share of the parties, rounded up."""
    return -(-parties * share.numerator // share.denominator)


def default_hosts(agreement: Agreement) -> dict[str, str]:
    """A host for every role that no contributor fills: a party without rows if there is one, else the first party.

    Roles that the protocol wants apart get different hosts.
    """
    contributors = set(agreement.contributors)
    order = sorted(agreement.names, key=lambda party: party in contributors)
    hosts: dict[str, str] = {}
    for seat in agreement.seats:
        if seat not in contributors:
            apart = agreement.study.scheme.apart()
            taken = {hosts[other] for pair in apart if seat in pair for other in pair if other in hosts}
            hosts[seat] = next((party for party in order if party not in taken), order[0])
    return hosts


def options_set(params: msgspec.Struct) -> dict[str, Any]:
    """The options that a typed object sets to something else than their default."""
    kind, found = type(params), {}
    for each in msgspec.structs.fields(kind):
        value = getattr(params, each.name)
        default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
        if value != default:
            found[each.name] = value
    return cast(dict[str, Any], msgspec.to_builtins(found))


def named(protocol: str | msgspec.Struct) -> tuple[str, msgspec.Struct | None]:
    """A protocol's name, and its typed options if they were given."""
    if isinstance(protocol, str):
        scheme(protocol)
        return protocol, None
    for name in names():
        if scheme(name).params is type(protocol) and type(protocol) is not NoParams:
            return name, protocol
    raise ConfigError(f"protocol is a name or the options of one; known: {', '.join(names())}")
