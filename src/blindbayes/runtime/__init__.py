"""Drivers that run roles: in memory, between processes, from a journal. I/O and clocks live here, never in a protocol."""
