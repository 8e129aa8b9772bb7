"""The privacy statement: the guarantee of a release, and its limits.

It answers the questions that NIST SP 800-226 asks of a differential privacy guarantee, and is written as text, as JSON and as
a record of the OpenDP Deployments Registry. A statement with an empty field cannot be made: an unanswered question is a gap
in the promise, not a matter of layout.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any, Literal, Protocol, get_args

from blindbayes.dp.accounting.sensitivity import Sensitivity
from blindbayes.dp.noise.exact_events import LARGEST_BUDGET
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_json, well_formed

FORMAT = "blindbayes.statement/1"
Model = Literal["Central", "Federated", "Local", "Shuffle"]
Variant = Literal["Pure DP", "Approximate DP"]
Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]

NOT_PROTECTED = (
    "Facts that hold of a group and do not hang on one unit (that is what the release is for). Whatever the codebook says: "
    "names, categories, bounds and class labels are public. That the table exists, who holds it and that this release was "
    "made. Values that were released before or elsewhere, without this ledger."
)
CENTRAL_TRUST = (
    "The holder of the table sees it in clear, runs this software unmodified, draws noise from the operating system's "
    "generator and publishes nothing but the release. Readers of the release are not trusted; they may hold any other data."
)
NO_TUNING = (
    "Assumed, not checked: that nothing was tuned on the private table, and features, bins, bounds, smoothing and epsilon were "
    "fixed beforehand from public knowledge. This software cannot see how they were chosen. A setting chosen by looking at "
    "private results, a score of a fold for example, would need budget of its own."
)
DECLARED_TUNING = "Declared by those who hold the tables, not checked: {}"


POST_PROCESSING = (
    "Negative counts are raised to zero, counts smoothed, variances kept above a floor and shrunk; all from the noisy "
    "integers and public facts, so that no privacy is spent."
)
ONE_RELEASE = (
    "One joint release of all statistics, at the price above. Other releases from the same table add to it; the holder's "
    "ledger lists them."
)
SIDE_CHANNELS = (
    "No floating point: statistics are exact integers, noise is integer noise, and only noisy integers are divided. The time "
    "and memory of the noise do not depend on the data; the time to count the table does and is not hidden."
)


def tuning_words(tuning: str | None) -> str:
    """Describe how settings were chosen: assumed, or as declared; never checked."""
    return NO_TUNING if tuning is None else DECLARED_TUNING.format(" ".join(tuning.split()) or "nothing")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The setting of a release, in the sentences of its statement; by default one holder of one table."""

    composition: str = ONE_RELEASE
    trust_model: str = CENTRAL_TRUST
    not_protected: str = NOT_PROTECTED
    post_processing: str = POST_PROCESSING
    side_channels: str = SIDE_CHANNELS
    model: Model = "Central"


class Releasing(Protocol):
    """A mechanism that a statement can be written for."""

    @property
    def name(self) -> str: ...
    @property
    def sampler(self) -> str: ...
    @property
    def price(self) -> PrivacyCost: ...


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The promise of one release. Every field is required; text fields must say something."""

    unit: str
    adjacency: str
    epsilon: float
    delta: float
    rho: float | None  # None where the mechanism has no zero-concentrated form
    mechanism: str
    sensitivity: str
    sampler: str
    composition: str
    not_protected: str
    trust_model: str
    tuning: str
    post_processing: str
    side_channels: str
    data_domain: str
    codebook: str
    model: Model = "Central"
    format: str = FORMAT

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str) and not value.strip():
                raise ConfigError(f"privacy statement: {item.name} is empty; a statement with a gap promises nothing")
            if value is None and item.name != "rho":
                raise ConfigError(f"privacy statement: {item.name} is missing; a statement with a gap promises nothing")
        if not (isinstance(self.epsilon, int | float) and 0 < self.epsilon <= LARGEST_BUDGET):
            raise ConfigError(f"privacy statement: epsilon must be a number above zero, at most {float(LARGEST_BUDGET):g}")
        if not (isinstance(self.delta, int | float) and 0 <= self.delta < 1):
            raise ConfigError("privacy statement: delta must lie between 0 and 1")
        if self.model not in get_args(Model):
            raise ConfigError(f"privacy statement: model is one of {', '.join(get_args(Model))}")
        if not re.fullmatch(r"[0-9a-f]{64}", self.codebook):
            raise ConfigError("privacy statement: codebook is the SHA-256 of the codebook")
        if self.format != FORMAT:
            raise ConfigError("privacy statement: this version is not known")

    @property
    def variant(self) -> Variant:
        """The registry's name of the guarantee."""
        return "Approximate DP" if self.delta else "Pure DP"

    @classmethod
    def for_release(
        cls,
        mechanism: Releasing,
        *,
        sensitivity: Sensitivity | str,
        codebook: str,
        data_domain: str,
        tuning: str | None = None,
        setting: Setting | None = None,
    ) -> PrivacyStatement:
        """Return the statement of one release by a mechanism; what the mechanism knows is filled in."""
        price = mechanism.price
        setting = setting or Setting()
        if isinstance(sensitivity, Sensitivity):
            sensitivity = (
                f"{sensitivity.unit} moves at most {sensitivity.rows_per_unit} cell(s) in each of {len(sensitivity.blocks)} "
                f"blocks ({sensitivity.size} integers): L1 {sensitivity.l1}, squared L2 {sensitivity.l2_squared}, "
                f"largest cell {sensitivity.linf}"
            )
        return cls(
            unit=price.unit,
            adjacency=price.adjacency,
            epsilon=price.epsilon,
            delta=price.delta,
            rho=price.rho,
            mechanism=mechanism.name,
            sensitivity=sensitivity,
            sampler=mechanism.sampler,
            composition=setting.composition,
            not_protected=setting.not_protected,
            trust_model=setting.trust_model,
            tuning=tuning_words(tuning),
            post_processing=setting.post_processing,
            side_channels=setting.side_channels,
            data_domain=data_domain,
            codebook=codebook,
            model=setting.model,
        )

    # -- forms -----------------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Plain text with one heading per question (valid Markdown)."""
        guarantee = f"epsilon = {self.epsilon:g}, delta = {self.delta:g}" + (f", rho = {self.rho:g} (zCDP)" if self.rho else "")
        odds = math.exp(min(self.epsilon, 700.0))  # beyond that no float holds it
        sections = (
            ("What is promised", f"({guarantee})-differential privacy ({self.variant}), {self.model.lower()} model."),
            ("Who is protected", f"{self.unit}; neighbouring tables: {self.adjacency} {self.unit}."),
            (
                "What that means",
                f"The odds of whatever a reader concludes change by a factor of at most {odds:.3g} through {self.unit}"
                + (f", but for a chance of at most {self.delta:g}." if self.delta else "."),
            ),
            ("Which tables", self.data_domain),
            ("Sensitivity", self.sensitivity),
            ("Mechanism", self.mechanism),
            ("Sampler", self.sampler),
            ("Composition", self.composition),
            ("Post-processing", self.post_processing),
            ("Tuning", self.tuning),
            ("Trust", self.trust_model),
            ("Side channels", self.side_channels),
            ("Not protected", self.not_protected),
            ("Codebook", f"SHA-256 {self.codebook}"),
        )
        return "# Privacy statement\n\n" + "\n\n".join(f"## {title}\n\n{body}" for title, body in sections) + "\n"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PrivacyStatement:
        """Parse `to_json`. Unknown and missing fields are refused."""
        return cls.from_dict(read_json(text, "the privacy statement"))

    @classmethod
    def from_dict(cls, record: Any) -> PrivacyStatement:
        """Parse `to_dict`, which may come from an untrusted file. Unknown and missing fields are refused."""
        names = {item.name for item in fields(cls)}
        if not isinstance(record, dict) or set(record) != names:
            raise ConfigError("privacy statement: fields are missing or unknown")
        with well_formed("the privacy statement", error=ConfigError):
            made = cls(**record)
            made.text  # noqa: B018 - every field is used, and so of its kind
        return made

    def to_registry(self, deployment: Deployment) -> dict[str, Any]:
        """Return a record of the OpenDP Deployments Registry, at its tier 3."""
        parameters: dict[str, float] = {"epsilon": self.epsilon}
        if self.delta:
            parameters["delta"] = self.delta
        if self.rho:
            parameters["rho"] = self.rho
        return {
            "url_slug": deployment.slug,
            "status": "Draft",
            "tier": 3,
            "deployment": {
                "basic": {
                    "name": deployment.name,
                    "data_curators": list(deployment.curators),
                    "intended_use": deployment.intended_use,
                    "data_product_type": "Machine learning model",
                    "data_product_region": deployment.region,
                    "description": deployment.description,
                    "publication_date": deployment.published.isoformat(),
                    "data_product_sector": deployment.sector,
                },
                "dp_variant": {
                    "variant_name": self.variant,
                    "data_domain": self.data_domain,
                    "unprotected_quantities": self.not_protected,
                },
                "privacy_loss": {
                    "privacy_unit": self.unit,
                    "privacy_unit_details": f"{self.adjacency} {self.unit}. {self.sensitivity}.",
                    "privacy_parameters": parameters,
                    "privacy_parameters_details": f"Codebook SHA-256 {self.codebook}.",
                },
                "deployment_model": {
                    "model_name": self.model,
                    "model_name_details": self.trust_model,
                    "actors": deployment.actors,
                    "release_type": "One release",
                    "release_type_details": self.composition,
                    "data_source_type": "Static",
                    "access_type": "Non-interactive",
                },
                "accounting": {"post_processing": self.post_processing, "composition": self.composition},
                "implementation": {
                    "preprocessing_and_hyperparameter_tuning": self.tuning,
                    "mechanisms": f"{self.mechanism}. {self.sampler}. {self.side_channels}",
                    "justification": deployment.justification,
                },
                "administrative": {"sources": deployment.sources, "registry_authors": list(deployment.authors)},
            },
        }

    def to_yaml(self, deployment: Deployment) -> str:
        """Return the registry record as YAML."""
        return "\n".join(_yaml(self.to_registry(deployment), 0)) + "\n"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Facts that the registry asks for beyond the guarantee. Every field is required."""

    name: str
    curators: tuple[str, ...]
    intended_use: str
    region: str
    description: str
    published: date
    sector: Sector
    actors: str
    justification: str
    sources: str
    authors: tuple[str, ...]

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            texts = value if isinstance(value, tuple) else (str(value),)
            if not texts or not all(text.strip() for text in texts):
                raise ConfigError(f"deployment record: {item.name} is empty")
        if self.sector not in get_args(Sector):
            raise ConfigError(f"deployment record: sector is one of {', '.join(get_args(Sector))}")

    @property
    def slug(self) -> str:
        """The record's stable name, made as the registry makes it: name, curators, year."""
        words = f"{self.name} {' '.join(self.curators)} {self.published.year}".lower()
        return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _yaml(value: dict[str, Any], depth: int) -> list[str]:
    """Block YAML for what a record holds: mappings, lists of text, text and numbers. Text is quoted as JSON, which is YAML."""
    pad, lines = "  " * depth, []
    for key, item in value.items():
        if isinstance(item, dict):
            lines += [f"{pad}{key}:", *_yaml(item, depth + 1)]
        elif isinstance(item, list):
            lines += [f"{pad}{key}:", *[f"{pad}  - {json.dumps(entry)}" for entry in item]]
        elif isinstance(item, float):
            lines.append(f"{pad}{key}: {_number(item)}")
        else:
            lines.append(f"{pad}{key}: {json.dumps(item)}")
    return lines


def _number(value: float) -> str:
    """Format a float so that every YAML reader takes it for a number: 1e-06 lacks the point that YAML 1.1 wants."""
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"
