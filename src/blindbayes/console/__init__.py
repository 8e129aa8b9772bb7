"""The site console: one table of calls, as a JSON API for commands and as pages for people, on this machine only."""
