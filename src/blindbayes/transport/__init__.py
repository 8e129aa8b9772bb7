"""Drivers that run roles and what carries their messages: memory, journals, links, envelopes, couriers."""
