"""Options of scalar_product, the paper's own route."""

from __future__ import annotations

from typing import Literal

import msgspec

from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.study import Study, learner_of


class ScalarProductParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of scalar_product."""

    opening: Literal["shares", "printed"] | None = None  # rows: printed opens the counts, as the paper's Protocol 3 does
    rings: int | None = None  # rows: rings of the collusion-resistant sum
    queries: int | None = None  # columns: how many instances may be classified, ever
    key_bits: int | None = None  # of Paillier's modulus
    toy_keys: bool | None = None  # allow short moduli
    degree: int | None = None  # of the polynomial of the logarithm
    divisor: Literal["n", "n-1"] | None = None  # of the variance


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
    if study.options.get("queries", 1) < 1:
        raise ConfigError("the option queries is the number of instances that may be classified")
