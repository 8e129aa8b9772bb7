"""One organisation's agent: its folder, policy, approvals, audit log, runs and the port for its own people."""
