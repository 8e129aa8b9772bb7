"""The privacy statement: the guarantee of a release, what was done stage by stage, and its limits.

Its sections follow the pyramid of NIST SP 800-226 from the privacy parameters down to the collection of the data. It is one
record; the text for officers, the JSON for machines (docs/statement.schema.json) and the draft for the OpenDP Deployments
Registry are made from it. A statement with an empty field cannot be made: an unanswered question is a gap in the promise.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal, Protocol, get_args

from blindbayes import __version__
from blindbayes.dp.accounting.sensitivity import Sensitivity
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.noise.exact_events import LARGEST_BUDGET
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_json, well_formed

FORMAT = "blindbayes.statement/2"
Model = Literal["Central", "Federated", "Local", "Shuffle"]
Variant = Literal["Pure DP", "Approximate DP"]
Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]
GROUPS = (2, 5, 10)
"""Numbers of units for which the statement says what is promised to all of them together."""
FALSE_ALARMS = (0.001, 0.01, 0.1)
"""False-positive rates at which the statement bounds what an attack can find."""

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
CENTRAL_ACCESS = (
    "The process that made the release read the table in clear, and so could anyone who may run processes or read files there; "
    "this software neither encrypts the table nor controls access to it. It keeps no copy of the rows and writes no exact "
    "count to the model, its documents or the ledger. How long the table itself is kept is its holder's decision."
)
COLLECTION = (
    "Not covered: how the data were collected, what was asked of the people, and who holds copies made before this software "
    "read the table. Differential privacy bounds what the release adds to what is known, not what collecting it exposed."
)
CENTRAL_RANDOMNESS = (
    "Noise is drawn from the operating system's generator (os.urandom). The promise is proved for uniform random bits; that "
    "this generator cannot be distinguished from them is a computational assumption, the only one."
)
FEDERATED_ACCESS = (
    "Each site's process reads its own table in clear, and no other site reads it; who may run processes or read files at a "
    "site can read that table too, and the run's journal, which holds the coins of the site's noise so that a run can resume "
    "after a crash. This software does not control access to a site's machine. How long tables and journals are kept is the "
    "site's decision."
)
FEDERATED_RANDOMNESS = (
    "Each party draws its own noise from coins that the operating system's generator (os.urandom) seeds and AES-256-CTR "
    "expands. The promise is proved for uniform random bits; that these cannot be distinguished from them is a computational "
    "assumption, and so is what the trust model says of cryptography."
)
UTILITY = (
    "Noise widens every estimate; explain.html, where a release has one with intervals, shows by how much. Small classes and "
    "rare values suffer most: their noise is as large as that of common ones, and their counts are smaller, so that the model "
    "may serve small groups worse. Accuracy must be measured on rows that did not train it."
)


def tuning_words(tuning: str | None) -> str:
    """Describe how settings were chosen: assumed, or as declared; never checked."""
    return NO_TUNING if tuning is None else DECLARED_TUNING.format(" ".join(tuning.split()) or "nothing")


@lru_cache(maxsize=8)
def code_digest(drawn_in: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of the sources that plan, draw and account for noise, by name and content.

    `drawn_in` are the modules of the mechanism; those outside `blindbayes.dp`, which is hashed whole, are added.
    """
    digest = hashlib.sha256()

    def add(folder: Traversable, path: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                add(entry, f"{path}/{entry.name}")
            elif entry.name.endswith(".py"):
                content = entry.read_bytes()
                digest.update(f"{path}/{entry.name} {len(content)}\n".encode() + content)

    add(files("blindbayes.dp"), "dp")
    coins = files("blindbayes.crypto").joinpath("coins.py").read_bytes()
    digest.update(f"crypto/coins.py {len(coins)}\n".encode() + coins)
    for module in sorted(set(drawn_in)):
        package, _, name = module.rpartition(".")
        if not module.startswith("blindbayes.dp."):
            content = files(package).joinpath(f"{name}.py").read_bytes()
            digest.update(f"{module} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The circumstances of a release, as sentences of its statement. The defaults are those of one table at one holder."""

    composition: str = ONE_RELEASE
    trust_model: str = CENTRAL_TRUST
    not_protected: str = NOT_PROTECTED
    post_processing: str = POST_PROCESSING
    model: Model = "Central"
    drawn_in: tuple[str, ...] = ()  # modules of the mechanism that `blindbayes.dp` may not have

    @property
    def randomness(self) -> str:
        """The sentence on the random generator and on computational assumptions."""
        return CENTRAL_RANDOMNESS if self.model == "Central" else FEDERATED_RANDOMNESS

    @property
    def access(self) -> str:
        """The sentence on who reads the tables and what is stored."""
        return CENTRAL_ACCESS if self.model == "Central" else FEDERATED_ACCESS


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
    rho: float | None  # None where no zero-concentrated bound is stated
    stages: tuple[Stage, ...]  # what was done, in order; their prices add up to epsilon and delta
    sensitivity: str
    composition: str
    not_protected: str
    trust_model: str
    tuning: str
    post_processing: str
    randomness: str
    access: str
    data_domain: str
    codebook: str
    model: Model = "Central"
    collection: str = COLLECTION
    utility: str = UTILITY
    software: str = f"blindbayes {__version__}"
    sources: str = ""  # SHA-256 of the sources that drew the noise
    format: str = FORMAT

    def __post_init__(self) -> None:
        if not self.sources:
            object.__setattr__(self, "sources", code_digest())
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
        if not all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in (self.codebook, self.sources)):
            raise ConfigError("privacy statement: codebook and sources are SHA-256 digests")
        if self.format != FORMAT:
            raise ConfigError("privacy statement: this version is not known")
        self._require_stages()

    def _require_stages(self) -> None:
        if not self.stages:
            raise ConfigError("privacy statement: stages are missing; a statement with a gap promises nothing")
        if any((stage.unit, stage.adjacency) != (self.unit, self.adjacency) for stage in self.stages):
            raise ConfigError("privacy statement: a stage protects another unit than the release")
        epsilon, delta = (sum(float(getattr(stage, name)) for stage in self.stages) for name in ("epsilon", "delta"))
        if not (math.isclose(epsilon, self.epsilon, rel_tol=1e-9) and math.isclose(delta, self.delta, rel_tol=1e-9)):
            raise ConfigError("privacy statement: the prices of the stages do not add up to epsilon and delta")

    @property
    def variant(self) -> Variant:
        """The registry's name of the guarantee."""
        return "Approximate DP" if self.delta else "Pure DP"

    @property
    def mechanism(self) -> str:
        """The mechanisms of all stages."""
        return ", ".join(dict.fromkeys(stage.mechanism for stage in self.stages))

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
        stages: Sequence[Stage] = (),
    ) -> PrivacyStatement:
        """Return the statement of one release. Without `stages` the mechanism is the only one."""
        price = mechanism.price
        setting = setting or Setting()
        if isinstance(sensitivity, Sensitivity):
            sensitivity = sensitivity_words(sensitivity)
        if not stages:
            stages = (Stage.for_release("release", mechanism.name, price, mechanism.sampler),)
        return cls(
            unit=price.unit,
            adjacency=price.adjacency,
            epsilon=price.epsilon,
            delta=price.delta,
            rho=price.rho,
            stages=tuple(stages),
            sensitivity=sensitivity,
            composition=setting.composition,
            not_protected=setting.not_protected,
            trust_model=setting.trust_model,
            tuning=tuning_words(tuning),
            post_processing=setting.post_processing,
            randomness=setting.randomness,
            access=setting.access,
            data_domain=data_domain,
            codebook=codebook,
            model=setting.model,
            sources=code_digest(setting.drawn_in),
        )

    # -- what epsilon means ----------------------------------------------------------------------------------------------

    def group(self, units: int) -> tuple[float, float]:
        """Return the epsilon and delta that hold for this number of units together."""
        cost = PrivacyCost(self.epsilon, self.delta, self.unit, self.adjacency).group(units)
        return cost.epsilon, cost.delta

    def true_positives(self, false_positives: float) -> float:
        """Return the largest true-positive rate of any attack on membership at this false-positive rate."""
        odds = self.odds
        return min(1.0, odds * false_positives + self.delta, 1 - (1 - self.delta - false_positives) / odds)

    @property
    def odds(self) -> float:
        """The factor e^epsilon. Without delta, one unit changes the odds of any event by this factor at most."""
        return math.exp(min(self.epsilon, 700.0))  # beyond that no float holds it

    @property
    def odds_bound(self) -> tuple[float, float]:
        """The largest factor by which one unit changes the odds of anything, and the chance at most of a larger one.

        Delta bounds sums of probabilities, not each ratio. Let S hold the releases that are over 2 e^epsilon times likelier
        with the unit: P(S) <= e^epsilon Q(S) + delta <= P(S) / 2 + delta, so P(S) <= 2 delta. Those that are as much less
        likely have Q(T) <= 2 delta likewise, so P(T) <= delta.
        """
        return (2 * self.odds, min(1.0, 3 * self.delta)) if self.delta else (self.odds, 0.0)

    @property
    def advantage(self) -> float:
        """The largest difference of true- and false-positive rate of any attack on membership."""
        return min(1.0, math.tanh(self.epsilon / 2) + 2 * self.delta / (self.odds + 1))

    @property
    def meaning(self) -> str:
        """The meaning of epsilon and delta: odds, bounds on attacks, groups of units."""
        factor, chance = self.odds_bound
        but = f", but for a chance of at most {chance:g}" if chance else ""
        caught = "; ".join(f"{rate:g}: at most {self.true_positives(rate):.3g}" for rate in FALSE_ALARMS)
        groups = "; ".join(f"{units}: {_parameters(*self.group(units))}" for units in GROUPS)
        return (
            f"The odds of whatever a reader concludes change by a factor of at most {factor:.3g} through {self.unit}{but}. "
            "Anyone who guesses from the release whether a given unit was in the table, knowing all the others, is right more "
            f"often than by chance by at most {self.advantage:.3g} (true-positive less false-positive rate). True-positive "
            f"rate by false-positive rate: {caught}. For groups of units together: {groups}."
        )

    @property
    def substitution(self) -> str:
        """The promise if one unit is exchanged for another (bounded differential privacy)."""
        return f"Exchanging one for another in place (substitute, bounded) is two such steps: {_parameters(*self.group(2))}."

    @property
    def side_channels(self) -> str:
        """Floating point and time, as the stages say."""
        floating = [stage.name for stage in self.stages if stage.floating_point]
        timed = [stage.name for stage in self.stages if stage.timing]
        number = (
            "No floating point: statistics are exact integers, noise is integer noise, and only noisy integers are divided."
        )
        if floating:
            number = (
                f"Floating point takes part before noise in: {', '.join(floating)}. There every row's part is computed from "
                "that row and public numbers alone and ends as an integer, so rounding cannot depend on another row. Other "
                "statistics are exact integers, and all noise and coins are drawn in exact arithmetic."
            )
        if not timed:
            return (
                f"{number} The time and memory of the noise do not depend on the data; the time to count the table does and is "
                "not hidden."
            )
        return (
            f"{number} The time of these stages depends on the data: {', '.join(timed)}; so does the time to count the table. "
            "Neither is hidden: readers of the release must not be able to time the run."
        )

    @property
    def stage_lines(self) -> list[str]:
        """One line per stage: name, mechanism, price and part of epsilon, unit, neighbours, sampler, floating point, time."""
        return [
            f"{stage.name}: {stage.mechanism}, {_parameters(float(stage.epsilon), stage.delta, stage.rho)} "
            f"({float(stage.epsilon) / self.epsilon:.0%} of epsilon), {stage.adjacency} {stage.unit}. Sampler: "
            f"{stage.sampler}. {'Floating-point scores' if stage.floating_point else 'Integers only'}; the time of the draw "
            f"{'depends on the data' if stage.timing else 'does not depend on the data'}."
            for stage in self.stages
        ]

    # -- forms -----------------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Plain text with one heading per question (valid Markdown)."""
        guarantee = _parameters(self.epsilon, self.delta, self.rho)
        sections = (
            ("What is promised", f"({guarantee})-differential privacy ({self.variant}), {self.model.lower()} model."),
            ("Unit of privacy", f"{self.unit}; neighbouring tables: {self.adjacency} {self.unit}. {self.substitution}"),
            ("What that means", self.meaning),
            ("Which tables", self.data_domain),
            ("Sensitivity", self.sensitivity),
            ("Mechanisms, stage by stage", "\n".join(f"- {line}" for line in self.stage_lines)),
            ("Composition and ledger", self.composition),
            ("Post-processing", self.post_processing),
            ("Utility and bias", self.utility),
            ("Tuning", self.tuning),
            ("Trust model", self.trust_model),
            ("Randomness, and what is computational", self.randomness),
            ("Implementation and side channels", self.side_channels),
            ("Software", f"{self.software}; SHA-256 of the sources that drew the noise: {self.sources}"),
            ("Data security and access control", self.access),
            ("Data collection exposure", self.collection),
            ("Not protected", self.not_protected),
            ("Codebook", f"SHA-256 {self.codebook}"),
        )
        return "# Privacy statement\n\n" + "\n\n".join(f"## {title}\n\n{body}" for title, body in sections) + "\n"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "stages": [stage.to_dict() for stage in self.stages]}

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
            if not isinstance(record["stages"], list | tuple):
                raise ConfigError("privacy statement: stages are a list")
            made = cls(**{**record, "stages": tuple(Stage.from_dict(stage) for stage in record["stages"])})
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
                    "privacy_unit_details": f"{self.adjacency} {self.unit}. {self.substitution} {self.sensitivity}",
                    "privacy_parameters": parameters,
                    "privacy_parameters_details": f"{self.meaning} Codebook SHA-256 {self.codebook}.",
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
                    "mechanisms": " ".join([*self.stage_lines, self.randomness, self.side_channels]),
                    "justification": deployment.justification,
                },
                "administrative": {
                    "sources": deployment.sources,
                    "notes": f"{self.software}, sources SHA-256 {self.sources}. {self.access} {self.utility}",
                    "registry_authors": list(deployment.authors),
                },
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


def sensitivity_words(sensitivity: Sensitivity) -> str:
    """Describe a sensitivity: two plain sentences, then the bounds."""
    return (
        f"If {sensitivity.unit} is added or removed, only a few of the released numbers change, each by no more than a bound "
        "that is fixed before the table is read. Noise is chosen to hide all of these changes at once. At most "
        f"{sensitivity.rows_per_unit} cell(s) in each of {len(sensitivity.blocks)} blocks ({sensitivity.size} integers): L1 "
        f"{sensitivity.l1}, squared L2 {sensitivity.l2_squared}, largest cell {sensitivity.linf}."
    )


def _parameters(epsilon: float, delta: float, rho: float | None = None) -> str:
    return f"epsilon = {epsilon:.6g}, delta = {delta:.6g}" + (f", rho = {rho:.6g} (zCDP)" if rho else "")


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
