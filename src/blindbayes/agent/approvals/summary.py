"""What people approve: every setting of a study that matters, in words, for every screen that asks for a yes.

One function, `approval_of`, for `study check`, `study dry-run`, `site approve` and the pages. It lists whatever is not at its
default, what each of those does to the number of sites that would have to collude, and the promise of the noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from blindbayes.disclosure.policy import Policy, require_allowed
from blindbayes.disclosure.value import SumForm
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols import registry
from blindbayes.protocols.registry import Coalition
from blindbayes.study.file import StudyFile
from blindbayes.study.settings import line_of
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes.study.tasks.sums import SumTask

_GROUPS = ("privacy", "limits", "estimation")
_PLAIN = ("reveal_to", "key", "duplicates")


@dataclass(frozen=True, slots=True)
class Changed:
    """A setting that is not at its default."""

    name: str
    value: Any
    default: Any  # None: not known, or none
    effect: str  # in words; empty: nothing to say beyond its name

    @property
    def line(self) -> str:
        default = "" if self.default is None else f" (default {_plain(self.default)})"
        return f"{self.name} = {_plain(self.value)}{default}" + (f": {self.effect}" if self.effect else "")


@dataclass(frozen=True, slots=True)
class Approval:
    """What a study asks people to agree to, beyond who takes part."""

    changed: tuple[Changed, ...]
    promise: Mapping[str, Any]  # epsilon, delta, unit, mechanism, honest_fraction, ...: always told
    colluders: int | None  # see `colluders_of`; None: the protocol's page states no number
    sentences: tuple[str, ...]  # what a coalition learns

    @property
    def lines(self) -> list[str]:
        told = [f"{name}: {_plain(value)}" for name, value in self.promise.items()]
        settings = [f"  {each.line}" for each in self.changed] or ["  none"]
        return [*told, "settings that are not the default:", *settings, *self.sentences]

    def to_dict(self) -> dict[str, Any]:
        return {
            "promise": dict(self.promise),
            "changed": [asdict(each) for each in self.changed],
            "colluders": self.colluders,
            "collusion": list(self.sentences),
        }


def approval_of(study: StudyFile) -> Approval:
    """What people should see before they say yes to a study."""
    sentences: tuple[str, ...] = ()
    if _is_sum(study):
        sentences = study.task.disclosure.deviation
    return Approval(_changed(study), _promise(study), colluders_of(study), sentences)


def _is_sum(study: StudyFile) -> bool:
    """Whether vectors of several sites are added up and the sum is opened."""
    return isinstance(study.task, SumTask)


def learners_of(study: StudyFile) -> tuple[str, ...]:
    """The parties that learn the result of a run: those whose roles open it, and over columns all, who keep a share each."""
    learners = {study.host(role) for role in study.task.learners}
    return tuple(name for name in study.names if name in learners)


def classifies(study: StudyFile) -> bool:
    """Whether runs of the study may also end in classes, which each site has for itself."""
    return study.task.disclosure.answers is not None


def coalition_of(study: StudyFile, without: Collection[str] = (), quorum: int | None = None) -> Coalition | None:
    """How large a coalition the study bears in the setting that it runs in; without some options, or with another quorum.
    None: its protocol claims nothing, or no run can be so."""
    if not _is_sum(study):
        return None
    options = {name: value for name, value in study.setting.options.items() if name not in without}
    setting = replace(study.setting, options=options, quorum=study.setting.quorum if quorum is None else quorum)
    try:
        return registry.coalition_of(study.protocol, setting)
    except ConfigError:
        if setting == study.setting:
            raise
        return None


def require_study(policy: Policy, study: StudyFile) -> None:
    """Raise `PrivacyError` if the policy refuses the study, whatever the rows are."""
    require_allowed(policy, study.task.disclosure)
    require_strength(study, policy.min_colluders, weaker=policy.weaker_options)
    if policy.require_all_signatures and set(study.require_signatures()) != set(study.names):
        raise PrivacyError("this site asks for the signatures of all parties on the study")


def require_strength(study: StudyFile, least: int, *, weaker: bool) -> None:
    """Refuse a study that too few colluders can read, and options that make it weaker than its protocol is without them."""
    found, usual = coalition_of(study), coalition_of(study, study.options)
    bears = colluders_of(study)
    if found is None or bears is None:
        return
    settings = "; ".join(each.line for each in _changed(study) if each.effect.startswith(_WEAKER))
    if bears < least:
        raise PrivacyError(
            f"the study bears {bears} colluding sites, whoever opens the sum among them, and this site asks for {least}: "
            f"{settings or 'take more sites, or another protocol'}"
        )
    if not weaker and usual is not None and (found.passive < usual.passive or found.active < usual.active):
        raise PrivacyError(
            f"the study's options make it weaker than {study.protocol} is without them: {settings}. Leave them out, or set "
            "weaker_options in the policy"
        )


_WEAKER = "weaker"


def colluders_of(study: StudyFile) -> int | None:
    """How many sites may pool what they saw and learn nothing of the others, the host of whoever opens the sum among them.

    Where the protocol claims something against parties that deviate, that is the number. A role that must be trusted breaks
    it together with the reader, wherever both are hosted: then it is one.
    """
    found, usual = coalition_of(study), coalition_of(study, study.options)
    if found is None:
        return None
    bears = max(found.passive if usual is not None and usual.active < 0 else found.active, 0)
    return min(bears, 1) if found.trusted else bears


def _promise(study: StudyFile) -> dict[str, Any]:
    privacy, told = study.privacy, dict[str, Any]()
    if privacy.epsilon is None:
        row_sum = study.task.disclosure.row_sum
        opened = "the exact sum" if row_sum is not None and row_sum.form is SumForm.EXACT else "nothing but what classes tell"
        told = {"noise": f"none: {opened} is opened"}
        if row_sum is not None:
            told["binds"] = "this site's table, for good, to exact sums over exactly these sites"
        return told
    told = {"epsilon": privacy.epsilon, "delta": privacy.delta, "unit": _unit(study)}
    if isinstance(study.task, SumTask):
        noise = study.task.sum.noise
        told |= {
            "mechanism": "none" if noise is None else f"{noise.mechanism}: {noise.law}",
            "honest_fraction": f"{privacy.honest_fraction:g} of the sites are relied on to add their noise",
        }
    return told


def _unit(study: StudyFile) -> str:
    if study.privacy.unit == "party":
        return f"party: all rows of a site, at most {study.privacy.party_rows}"
    if study.privacy.rows_per_person is not None:
        return f"person: at most {study.privacy.rows_per_person} rows at each site, drawn by the identifier"
    return "record: one row, not a whole site"


def _changed(file: StudyFile) -> tuple[Changed, ...]:
    changed, study = [], file.study
    for section, part in (*((name, getattr(study, name)) for name in _GROUPS), ("deadlines", file.deadlines)):
        for field in msgspec.structs.fields(part):
            value, default = getattr(part, field.name), _usual(field)
            if value != default:
                effect = line_of(f"study.{section}.{field.name}")
                if (section, field.name) == ("limits", "quorum") and _is_sum(file):
                    usual = _default_quorum(file)
                    effect = _compared(coalition_of(file), coalition_of(file, (), usual)) or effect
                changed.append(Changed(f"{section}.{field.name}", value, default, effect))
    for field in msgspec.structs.fields(study):
        if field.name in _PLAIN and (value := getattr(study, field.name)) != field.default:
            changed.append(Changed(field.name, value, field.default, line_of(f"study.{field.name}")))
    defaults = msgspec.structs.asdict(type(study.params)())
    for name, value in study.options.items():
        if name in defaults and value == defaults[name]:
            continue
        effect = _compared(coalition_of(file), coalition_of(file, (name,)))
        changed.append(
            Changed(f"options.{name}", value, defaults.get(name), effect or "an option of the protocol; see its page")
        )
    return tuple(changed)


def _default_quorum(file: StudyFile) -> int:
    limits = msgspec.structs.replace(file.study.limits, quorum=None, min_parties=2)
    return Sum.make(file.study.replace(limits=limits), file.contributors).setting.quorum_size


def _usual(field: msgspec.structs.FieldInfo) -> Any:
    """A field's default, made if it is made; None: it has none."""
    made = field.default_factory
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return made() if callable(made) else None


def _compared(now: Coalition | None, without: Coalition | None) -> str:
    """What a setting does to a coalition; empty if nothing."""
    if now is None or without is None or (now.passive, now.active) == (without.passive, without.active):
        return ""
    weaker = now.passive < without.passive or now.active < without.active
    word = _WEAKER if weaker else "stronger"
    return f"{word}: {_number(now)}; without it {_number(without)}"


def _number(found: Coalition) -> str:
    beside = f" beside {found.reader}" if found.reader else ""
    passive = f"{found.passive} colluding contributors{beside} learn nothing of the others"
    if found.active == found.passive:
        return f"{passive}, whatever they do"
    return f"{passive} if they follow the protocol, " + (
        f"{found.active} if they deviate" if found.active >= 0 else "and nothing is claimed if they deviate"
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_plain(item)}" for name, item in value.items())
    return str(value)
