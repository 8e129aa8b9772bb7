"""Aggregator-oblivious encryption: integers and bytes, no I/O."""
