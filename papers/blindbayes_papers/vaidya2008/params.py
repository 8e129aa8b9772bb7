"""Options of scalar_product, the paper's own route."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.study import Study, learner_of
from blindbayes.study.tasks.traits import Queries


class ScalarProductParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of scalar_product."""

    opening: Annotated[
        Literal["shares", "printed"] | None, "rows: `printed` opens the counts, as the paper's Protocol 3 does"
    ] = None
    rings: Annotated[int | None, "rows: number of rings of the collusion-resistant sum"] = None
    queries: Queries = None  # columns
    key_bits: Annotated[int | None, "bits of Paillier's modulus"] = None
    toy_keys: Annotated[bool | None, "allow short moduli: tests and reproductions of papers only"] = None
    degree: Annotated[int | None, "degree of the polynomial of the logarithm"] = None
    divisor: Annotated[Literal["n", "n-1"] | None, "divisor of the variance"] = None


DESCRIPTION = "Vaidya's own protocols, for comparison: slow, and over rows they open the counts."


def require_printed(study: Study) -> None:
    """It adds no noise; over columns both parties learn the class."""
    if study.privacy.epsilon is not None:
        raise PrivacyError(
            "scalar_product adds no noise; class_sums does, in the shares, and over rows opened_ratio with "
            "opening='noisy': take those, or leave epsilon out"
        )
    if learner_of(study) != "all":
        raise ConfigError("scalar_product reveals the class to both parties; leave reveal_to at 'all', or use class_sums")
    known = ("opening", "rings") if study.partition == "rows" else ("queries",)
    if unknown := sorted(set(study.options) - {*known, "key_bits", "toy_keys", "degree", "divisor"}):
        raise ConfigError(f"unknown protocol option {unknown[0]!r} over {study.partition}")
