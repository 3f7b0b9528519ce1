"""The built-in data set: a class-balanced part of MNIST, so that the first run needs no download.

``tools/build_digits.py`` makes the file; ``embedded/LICENSE-digits.md`` says whose work it is.
"""

from __future__ import annotations

from importlib.resources import as_file, files

from hauberk.data.raw import RawSplit, grey_archive

DIGITS_SHA256 = "ffbf35d03f2c2b89b12de07e3ad0c45dfa24bc854b922df30a852248d0c61ad3"


def read_digits() -> RawSplit:
    """20,000 training and 2,000 test digits, 28 x 28 grey."""
    with as_file(files("hauberk.data") / "embedded" / "digits.npz") as path:
        return grey_archive(path)
