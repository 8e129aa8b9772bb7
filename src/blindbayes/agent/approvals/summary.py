"""Summaries of a study for the person who approves it, on every screen that asks for approval.

`approval_of` lists the settings that are not at their defaults, their effect on the number of sites that would have to collude,
the privacy promise, and the checks before every run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from blindbayes.disclosure.checks import checks_for
from blindbayes.disclosure.plain import PlainWords, plain_words
from blindbayes.disclosure.policy import Policy, require_allowed
from blindbayes.disclosure.value import SumForm
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols import registry
from blindbayes.protocols.registry import Coalition
from blindbayes.study.file import StudyFile
from blindbayes.study.settings import line_of, option_lines
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes.study.tasks.sums import SumTask

_GROUPS = ("privacy", "limits", "estimation")
_PLAIN = ("reveal_to", "key", "duplicates")


@dataclass(frozen=True, slots=True)
class Changed:
    """A setting that is not at its default."""

    name: str
    value: Any
    default: Any  # None: unknown, or no default
    effect: str  # a sentence, or empty

    @property
    def line(self) -> str:
        default = "" if self.default is None else f" (default {_plain(self.default)})"
        return f"{self.name} = {_plain(self.value)}{default}" + (f": {self.effect}" if self.effect else "")


@dataclass(frozen=True, slots=True)
class Approval:
    """The content of the approval page, beyond who takes part."""

    changed: tuple[Changed, ...]
    promise: Mapping[str, Any]  # epsilon, delta, unit, mechanism, honest_fraction, ...: always shown
    colluders: int | None  # see `colluders_of`; None: the protocol states no number
    sentences: tuple[str, ...]  # what a coalition learns
    checks: tuple[str, ...]  # what this site checks before every run
    plain: PlainWords  # what leaves, who learns what, what cheating gains: read first
    risks: tuple[str, ...] = ()  # what deserves a second look

    @property
    def lines(self) -> list[str]:
        promise = [f"{name}: {_plain(value)}" for name, value in self.promise.items()]
        settings = [f"  {each.line}" for each in self.changed] or ["  none"]
        return [*promise, "settings that are not the default:", *settings, *self.sentences]

    def to_dict(self) -> dict[str, Any]:
        return {
            "promise": dict(self.promise),
            "changed": [asdict(each) for each in self.changed],
            "colluders": self.colluders,
            "collusion": list(self.sentences),
            "checks": list(self.checks),
            "plain": {name: list(lines) for name, lines in asdict(self.plain).items()},
            "risks": list(self.risks),
        }


def approval_of(study: StudyFile) -> Approval:
    """Return what the person who approves a study is shown."""
    opens = study.task.disclosure
    sentences = opens.deviation if isinstance(study.task, SumTask) else ()
    checks = tuple(check.sentence for check in checks_for(opens))
    reads = {"reads": study.book.omop.described} if study.book.omop is not None else {}
    changed = _changed(study)
    weaker = [
        f"{each.name} makes it weaker than the protocol is by default" for each in changed if each.effect.startswith(_WEAKER)
    ]
    risks = (*weaker, *opens.risks)
    return Approval(changed, _promise(study) | reads, colluders_of(study), sentences, checks, plain_words(opens), risks)


def learners_of(study: StudyFile) -> tuple[str, ...]:
    """Return the parties that learn the result of a run, or keep a share of it."""
    learners = {study.host(role) for role in study.task.learners}
    return tuple(name for name in study.names if name in learners)


def classifies(study: StudyFile) -> bool:
    return study.task.disclosure.answers is not None


def coalition_of(study: StudyFile, without: Collection[str] = (), quorum: int | None = None) -> Coalition | None:
    """Return the coalition that the study tolerates, without some options, or with another quorum.

    None: its protocol claims nothing, or no run can have that form.
    """
    if not isinstance(study.task, SumTask):
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


def require_strength(study: StudyFile, min_colluders: int, *, weaker: bool) -> None:
    """Raise if too few colluders can read a study, or if its options make it weaker than its protocol is by default."""
    coalition, default = coalition_of(study), coalition_of(study, study.options)
    tolerated = colluders_of(study)
    if coalition is None or tolerated is None:
        return
    settings = "; ".join(each.line for each in _changed(study) if each.effect.startswith(_WEAKER))
    if tolerated < min_colluders:
        raise PrivacyError(
            f"the study bears {tolerated} colluding sites, the reader of the sum among them, and this site asks for "
            f"{min_colluders}: "
            f"{settings or 'take more sites, or another protocol'}"
        )
    if not weaker and default is not None and _is_weaker(coalition, default):
        raise PrivacyError(
            f"the study's options make it weaker than {study.protocol} is without them: {settings}. Leave them out, or set "
            "weaker_options in the policy"
        )


_WEAKER = "weaker"


def _is_weaker(one: Coalition, other: Coalition) -> bool:
    return one.passive < other.passive or one.active < other.active


def colluders_of(study: StudyFile) -> int | None:
    """Return the number of sites, the reader's host among them, that may collude and learn nothing of the others.

    If the protocol claims anything against parties that deviate, these count. A role that must be trusted breaks the promise
    together with the reader, so that the number is at most one.
    """
    coalition, default = coalition_of(study), coalition_of(study, study.options)
    if coalition is None:
        return None
    tolerated = max(coalition.passive if default is not None and default.active < 0 else coalition.active, 0)
    return min(tolerated, 1) if coalition.trusted else tolerated


def _promise(study: StudyFile) -> dict[str, Any]:
    privacy, promise = study.privacy, dict[str, Any]()
    if privacy.epsilon is None:
        row_sum = study.task.disclosure.row_sum
        opened = "the exact sum" if row_sum is not None and row_sum.form is SumForm.EXACT else "nothing but what classes tell"
        promise = {"noise": f"none: {opened} is opened"}
        if row_sum is not None:
            promise["binds"] = "this site's table, for good, to exact sums over exactly these sites"
        return promise
    promise = {"epsilon": privacy.epsilon, "delta": privacy.delta, "unit": _unit(study)}
    if isinstance(study.task, SumTask):
        noise = study.task.sum.noise
        promise |= {
            "mechanism": "none" if noise is None else f"{noise.mechanism}: {noise.law}",
            "honest_fraction": study.task.sum.relied_on,
        }
    return promise


def _unit(study: StudyFile) -> str:
    if study.privacy.unit == "party":
        return f"party: all rows of a site, at most {study.privacy.party_rows}"
    if study.privacy.rows_per_person is not None:
        rows, sites = study.privacy.rows_per_person, study.privacy.sites_per_person
        where = "each site" if sites is None else f"each of up to {sites} sites together (declared, not checked)"
        if study.privacy.is_matched:
            where = "one of the sites that they are at, matched by pseudonyms"
        return f"person: at most {rows} rows at {where}, drawn by the identifier"
    if study.book.omop is not None:
        return "person: all records of one person at a site, which are one row"
    return "record: one row, not a whole site"


def _changed(file: StudyFile) -> tuple[Changed, ...]:
    changed, study = [], file.study
    for section, part in (*((name, getattr(study, name)) for name in _GROUPS), ("deadlines", file.deadlines)):
        for field in msgspec.structs.fields(part):
            value, default = getattr(part, field.name), _default_of(field)
            if value != default:
                effect = line_of(f"study.{section}.{field.name}")
                if (section, field.name) == ("limits", "quorum") and isinstance(file.task, SumTask):
                    quorum = _default_quorum(file)
                    effect = _compared(coalition_of(file), coalition_of(file, (), quorum)) or effect
                changed.append(Changed(f"{section}.{field.name}", value, default, effect))
    for field in msgspec.structs.fields(study):
        if field.name in _PLAIN and (value := getattr(study, field.name)) != field.default:
            changed.append(Changed(field.name, value, field.default, line_of(f"study.{field.name}")))
    defaults = msgspec.structs.asdict(type(study.params)())
    for name, value in study.options.items():
        if name in defaults and value == defaults[name]:
            continue
        effect = _compared(coalition_of(file), coalition_of(file, (name,))) or option_lines(type(study.params))[name]
        changed.append(Changed(f"options.{name}", value, defaults.get(name), effect.replace("`", "")))
    return tuple(changed)


def _default_quorum(file: StudyFile) -> int:
    limits = msgspec.structs.replace(file.study.limits, quorum=None, min_parties=2)
    return Sum.make(file.study.replace(limits=limits), file.contributors).setting.quorum_size


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    if field.default is not msgspec.NODEFAULT:
        return field.default
    return made() if callable(made) else None


def _compared(now: Coalition | None, without: Coalition | None) -> str:
    """Return the effect of a setting on the coalition that is tolerated, or an empty string."""
    if now is None or without is None or (now.passive, now.active) == (without.passive, without.active):
        return ""
    word = _WEAKER if _is_weaker(now, without) else "stronger"
    return f"{word}: {_number(now)}; without it {_number(without)}"


def _number(coalition: Coalition) -> str:
    beside = f" beside {coalition.reader}" if coalition.reader else ""
    passive = f"{coalition.passive} colluding contributors{beside} learn nothing of the others"
    if coalition.active == coalition.passive:
        return f"{passive}, whatever they do"
    return f"{passive} if they follow the protocol, " + (
        f"{coalition.active} if they deviate" if coalition.active >= 0 else "and nothing is claimed if they deviate"
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
