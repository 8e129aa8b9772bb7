"""The sum in clear behind the interface of the product's protocols: what every other one must equal. See SPEC.md."""

from blindbayes.protocols import registry
from support.reference.roles import PROTOCOL, Reference

__all__ = ["PROTOCOL", "Reference", "offer_reference"]


def offer_reference() -> None:
    """Let studies of this process name `reference`; the package itself has no protocol that protects nothing."""
    registry.ROWS.setdefault("reference", __name__)
