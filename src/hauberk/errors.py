"""The one exception that means: the request was wrong, and here is what to change."""

from __future__ import annotations


class RequestError(ValueError):
    """A user's mistake, told in one sentence; the command line prints it and exits with code 2."""
