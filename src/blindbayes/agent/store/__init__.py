"""A site's folder and what lies in it."""
