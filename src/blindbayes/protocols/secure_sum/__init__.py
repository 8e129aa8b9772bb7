"""The sum of the contributors' vectors under masks that cancel, with recovery of lost contributors. See SPEC.md."""

from blindbayes.protocols.secure_sum.roles import PROTOCOL, MaskedSum

__all__ = ["PROTOCOL", "MaskedSum"]
