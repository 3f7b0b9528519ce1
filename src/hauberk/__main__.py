"""``python -m hauberk`` is the same as ``hauberk``."""

from hauberk.cli import main

main()
