"""A site's folder and its contents."""
