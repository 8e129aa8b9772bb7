"""The site console: one table of calls, served as a JSON API and as HTML pages on loopback."""
