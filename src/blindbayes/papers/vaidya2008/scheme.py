"""scalar_product as a way to run a study: the paper's own route, for rows and for columns, in one process only."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts
from blindbayes.study.study import Study


class ScalarProductParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of scalar_product."""

    opening: Literal["shares", "printed"] | None = None  # rows: printed opens the counts, as the paper's Protocol 3 does
    rings: int | None = None  # rows: rings of the collusion-resistant sum
    queries: int | None = None  # columns: how many instances may be classified, ever
    key_bits: int | None = None  # of Paillier's modulus
    toy_keys: bool | None = None  # allow short moduli
    degree: int | None = None  # of the polynomial of the logarithm
    divisor: Literal["n", "n-1"] | None = None  # of the variance


class ScalarProduct:
    """See `study.schemes.Scheme`; agents run none of it."""

    name = "scalar_product"
    params = ScalarProductParams
    facts = Facts(
        partitions=("rows", "columns"),
        line="Vaidya's own protocols, for comparison.",
        between_sites=False,
        allowed=False,
        offered=False,
    )

    def check(self, study: Study) -> None:
        """It adds no noise; over columns both parties learn the class."""
        if study.epsilon is not None:
            raise PrivacyError(
                "scalar_product adds no noise; class_sums does, in the shares, and over rows private_ratio with "
                "opening='noisy': take those, or leave epsilon out"
            )
        if study.reveal_to != "all":
            raise ConfigError("scalar_product tells the class to both parties; leave reveal_to at 'all', or use class_sums")
        known = ("opening", "rings") if study.partition == "rows" else ("queries",)
        if unknown := sorted(set(study.options) - {*known, "key_bits", "toy_keys", "degree", "divisor"}):
            raise ConfigError(f"unknown protocol option {unknown[0]!r} over {study.partition}")
        if study.options.get("queries", 1) < 1:
            raise ConfigError("the option queries is the number of instances that may be classified")

    def simulate(self, study: Study) -> str:
        """Its own run, by partition."""
        return f"blindbayes.papers.vaidya2008.{study.partition}:simulate"

    def quorum(self, parties: int) -> int | None:
        """Everybody."""
        return None

    def apart(self) -> tuple[tuple[str, ...], ...]:
        """Every role is a party's own."""
        return ()

    def seats(self, agreement: Agreement) -> tuple[str, ...]:
        """The parties."""
        return agreement.names

    def _alone(self, *_: Any, **__: Any) -> Any:
        raise ConfigError("scalar_product runs in one process only: Study.simulate")

    require_runnable = learners = agree = meet = job = result = exposure = shown = told = dry_run = _alone


SCHEME = ScalarProduct()


def scheme(name: str) -> ScalarProduct:
    """The scheme of scalar_product."""
    return SCHEME
