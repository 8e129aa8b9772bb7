"""`joint_circuit`: a circuit on bits that any number of parties share, safe while one of them is honest. See SPEC.md."""

from blindbayes.protocols.joint_circuit.roles import CircuitParty, Mesh, connect

__all__ = ["CircuitParty", "Mesh", "connect"]
