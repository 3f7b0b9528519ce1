"""What every test shares: property tests draw the same examples each time.

A test that passes here and fails there tells nobody anything about the change in hand. `make test` therefore
repeats its examples; `make test-search` looks for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("repeat", derandomize=True, database=None)
settings.register_profile("search", print_blob=True)
settings.load_profile("search" if os.environ.get("HYPOTHESIS_SEARCH") else "repeat")
