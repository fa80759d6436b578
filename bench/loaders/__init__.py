"""The same work through every loader, in one run."""
