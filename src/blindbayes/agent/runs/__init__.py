"""Runs at a site: states, context, roles, folders on disk, releases."""
