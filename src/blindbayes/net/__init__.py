"""Drivers that run roles and what carries their messages: memory, journals, links, envelopes, couriers."""

import os

# gRPC's handlers of fork() kill some of the children that are about to become another program: Spark's Java beside an agent.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
