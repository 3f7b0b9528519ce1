"""The command line. Exit codes: 0 done, 1 a check failed, 2 the request was wrong (one sentence says why)."""

from hauberk.cli.app import main

__all__ = ["main"]
