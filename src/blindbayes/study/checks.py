"""Named checks that a study runs, in order, when it is made. Groups of settings check themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blindbayes.codebook import Codebook, Text
from blindbayes.data.contribution_bound import require_identifier, require_rows_per_person
from blindbayes.data.split import require_comparable
from blindbayes.dp.noise.randomised_response import RandomisedLabels
from blindbayes.dp.release.release_plan import require_small_delta
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols import link_bytes
from blindbayes.study.fields import Estimation, Limits, Privacy
from blindbayes.study.tasks import registry
from blindbayes.study.tasks.traits import Support

if TYPE_CHECKING:
    from blindbayes.study.study import Study

_GROUPS = {"privacy": Privacy, "limits": Limits, "estimation": Estimation}


def _require_types(study: Study) -> None:
    if not isinstance(study.codebook, Codebook):
        raise ConfigError("codebook must be a Codebook; read one with Codebook.from_toml")
    if not isinstance(study.protocol, str):
        raise ConfigError("protocol must be the name of a protocol; its settings go into options")
    for name, kind in _GROUPS.items():
        if not isinstance(getattr(study, name), kind):
            raise ConfigError(f"{name} must be a blindbayes.{kind.__name__}")


def _require_protocol(study: Study) -> None:
    task = registry.task_class(study.protocol)
    if study.partition not in task.partitions:
        known = ", ".join(registry.known(study.partition))
        raise ConfigError(f"there is no {study.partition} protocol {study.protocol!r}; known: {known}")
    if study.partition == "columns" and study.aligned != task.aligned:
        rows, kind = ("line up", "ColumnStudy") if task.aligned else ("are matched by an identifier", "JoinStudy")
        raise ConfigError(f"{study.protocol} is for rows that {rows}: make a {kind}, or take another protocol")


def _require_features(study: Study) -> None:
    supports, what = registry.task_class(study.protocol).supports, f"a study over {study.described} by {study.protocol}"
    if Support.TEXT in supports:
        return
    if Support.WORDS in supports:
        for text in study.codebook.texts:
            _require_words(study, text, what)
        study.codebook.by_word.require_one_value(what)
    else:
        study.codebook.require_one_value(what)


def _require_words(study: Study, text: Text, what: str) -> None:
    """Refuse text features that count repeated words, and any with epsilon: over columns every counter counts people."""
    where = f"feature {text.name!r} is text"
    if not text.once:
        circuits, row, document = link_bytes.words(study.codebook, text)
        raise ConfigError(
            f"{where}: {what} counts people, and one document may use a word many times; set model = 'bernoulli', or leave it "
            f"out. As Bernoulli its {text.size} words cost about {circuits / 1e6:.3g} MB and {row / 1e3:.3g} kB per row in "
            f"training, and {document / 1e3:.3g} kB per classified document"
        )
    if study.privacy.epsilon is not None:
        raise PrivacyError(
            f"{where}: with epsilon in {what} the noise would have to cover all {text.size} words of one document; leave "
            "epsilon or the text out, or use categories"
        )


def _require_label_epsilon(study: Study) -> None:
    given = study.privacy.label_epsilon
    if given is None or given is False:
        return
    if Support.LABEL_EPSILON not in study.task_class.supports:
        raise ConfigError("label_epsilon is for models in shares over columns; leave it out")
    RandomisedLabels.make(given, len(study.codebook.classes))


def _require_delta(study: Study) -> None:
    privacy = study.privacy
    require_small_delta(study.codebook, privacy.delta, privacy.expected_rows, allow_large=privacy.allow_large_delta)


def _require_declared_codebook(study: Study) -> None:
    if study.is_private and study.codebook.provenance == "inferred":
        raise PrivacyError("this codebook was inferred from training data, which leaks it; declare one for a private study")


def _require_persons(study: Study) -> None:
    if study.privacy.rows_per_person is None:
        return
    if why := _no_persons(study):
        raise ConfigError(f"rows_per_person does not apply: {why}; leave it out")
    require_rows_per_person(study.privacy.rows_per_person)
    require_identifier(study.codebook)


def _no_persons(study: Study) -> str:
    """Return why a bound on rows per person does not apply; empty if it does."""
    if not study.is_private:
        return "without epsilon there is no noise that would protect a person"
    if study.partition == "columns" and study.aligned:
        return "row i of every party is one entity, and rows left out at one party would have to be at all"
    if study.partition == "columns":
        return "where rows are matched, a record is an identifier with all its rows: epsilon protects that person already"
    return "unit = 'party' protects all rows of a party already" if study.privacy.unit == "party" else ""


def _require_weights(study: Study) -> None:
    weights = study.estimation.class_weight
    if unknown := sorted(set(weights) - set(study.codebook.classes)):
        raise ConfigError(f"class_weight: {unknown[0]!r} is not a class of the codebook")
    if weights and Support.CLASS_WEIGHT not in study.task_class.supports:
        raise ConfigError(f"class_weight does not apply to {study.protocol}; leave it out")


def _require_duplicates(study: Study) -> None:
    from blindbayes.study.study import JoinStudy  # which imports this module

    if isinstance(study, JoinStudy) and study.duplicates not in ("join", "first", "reject"):
        raise ConfigError("duplicates are 'join', 'first' or 'reject'")


def _require_quorum(study: Study) -> None:
    if study.partition == "columns" and study.limits.quorum is not None:
        raise ConfigError(f"quorum does not apply to a study over {study.described}; leave it out")


def _require_min_cell(study: Study) -> None:
    if study.limits.min_cell and Support.MIN_CELL not in study.task_class.supports:
        raise ConfigError(f"min_cell does not apply to {study.protocol}; leave it out")


def _require_held_out(study: Study) -> None:
    estimation = study.estimation
    if not estimation.held_out and not estimation.folds:
        return
    name = "held_out" if estimation.held_out else "folds"
    if Support.EVALUATION not in study.task_class.supports:
        raise ConfigError(f"{name} does not apply to {study.protocol}, which opens no sum to evaluate a model by; leave it out")
    require_comparable(study.codebook)
    if estimation.site_figures != "none" and study.is_private:
        raise ConfigError("site_figures: noise would hide figures of a few sites, and they would cost more; leave it out")
    for candidate in estimation.candidates:
        if unknown := sorted(set(candidate.features) - set(study.codebook.names)):
            raise ConfigError(f"candidates: {unknown[0]!r} is no feature of the codebook")
        if candidate.bins is not None and study.is_private:
            raise ConfigError("candidates: with epsilon the noise decides how fine numbers are counted; leave bins out")


def _require_options(study: Study) -> None:
    study.params  # noqa: B018 - reading them refuses what the protocol does not know
    study.task_class.check(study)


CHECKS = (
    _require_types,
    _require_protocol,
    _require_features,
    _require_label_epsilon,
    _require_delta,
    _require_declared_codebook,
    _require_persons,
    _require_weights,
    _require_duplicates,
    _require_quorum,
    _require_min_cell,
    _require_held_out,
    _require_options,
)


def require_study(study: Study) -> None:
    """Refuse a study that is invalid, or has settings that do not apply: who signs it must know what a setting does."""
    for check in CHECKS:
        check(study)
