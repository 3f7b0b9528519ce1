"""How a user's file becomes an input: what a run must remember of its data to predict from other files.

Everything here is public: names of classes, bounds and levels of a schema, the size of pictures, and what
the privacy statement is about.
"""

from __future__ import annotations

from dataclasses import dataclass

from hauberk.data.dataset import Split
from hauberk.data.table_schema import TableSchema

ONE_RECORD = "one record"


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """Of a table (``schema``, as TOML) or of pictures (``image_size`` and ``grey``).

    ``unit`` is what the privacy statement protects, ``unprovable`` why there is none, if so.
    """

    classes: tuple[str, ...]
    unit: str = ONE_RECORD
    unprovable: str | None = None
    schema: str | None = None
    image_size: int | None = None
    grey: bool = False

    @property
    def table(self) -> TableSchema | None:
        return None if self.schema is None else TableSchema.from_toml(self.schema, named="the run's schema")


@dataclass(frozen=True, kw_only=True, eq=False)
class DescribedSplit(Split):
    """A split that knows the form of its inputs."""

    form: InputForm
