"""The plaintext protocol behind the same interface: what every other protocol for rows must equal. See SPEC.md."""

from blindbayes.protocols.reference.roles import PROTOCOL, Reference

__all__ = ["PROTOCOL", "Reference"]
