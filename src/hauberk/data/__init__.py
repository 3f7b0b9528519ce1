"""Data: labelled records in [0, 1], by name from a data folder, built in, or a user's own archive.

``load("digits")`` works everywhere; ``catalog()`` lists the names. Scaling uses public constants only, and
the number of training records is declared, never counted from a user's data. ``declare_public`` names records
that are not protected.
"""

from hauberk.data.catalog import CatalogRow, catalog
from hauberk.data.dataset import Dataset, Split
from hauberk.data.folder import data_folder
from hauberk.data.loading import load
from hauberk.data.public import declare_public, default_public, describe_public

__all__ = [
    "CatalogRow",
    "Dataset",
    "Split",
    "catalog",
    "data_folder",
    "declare_public",
    "default_public",
    "describe_public",
    "load",
]
