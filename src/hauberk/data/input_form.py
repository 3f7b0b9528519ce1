"""How a user's file becomes an input: what a run must remember of its data to predict from other files.

Everything here is public: names of classes, bounds and levels of a schema, the size of pictures, and what
the privacy statement is about.
"""

from __future__ import annotations

from dataclasses import dataclass

from hauberk.data.dataset import Split
from hauberk.data.table_schema import TableSchema
from hauberk.errors import RequestError

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

    def check(self, *, shape: tuple[int, ...], classes: int) -> None:
        """Refuse a form that is not that of inputs of this ``shape`` with so many classes."""
        if len(self.classes) != classes:
            raise RequestError(f"{len(self.classes)} classes have names, but the network has {classes}")
        if self.image_size is not None and shape[1:] != (self.image_size, self.image_size):
            raise RequestError(f"pictures of {self.image_size} pixels do not fit a network for {shape[1:]}")

    @property
    def table(self) -> TableSchema | None:
        return None if self.schema is None else TableSchema.from_toml(self.schema, named="the run's schema")


@dataclass(frozen=True, kw_only=True, eq=False)
class DescribedSplit(Split):
    """A split that knows the form of its inputs."""

    form: InputForm
