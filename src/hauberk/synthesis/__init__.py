"""Health records: their schema, the way into tensors and back, and synthesizers that learn from them.

Tables are read by a :class:`Schema` of public constants into :class:`Patients`, tensors in [0, 1] with masks
for missing values and increments for irregular times, and written back exactly. The privacy unit is one
patient with all rows.
"""

from hauberk.synthesis.base import Synthesizer, Task
from hauberk.synthesis.catalogue import SYNTHESIZERS, find_synthesizer, load_synthesizer
from hauberk.synthesis.cells import Repairs
from hauberk.synthesis.decode import decode
from hauberk.synthesis.encode import Encoded, encode
from hauberk.synthesis.inspection import Draft, draft_schema
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.presets import PRESETS, Part, Preset, find_preset, load_patients
from hauberk.synthesis.reading import read_patients, validate
from hauberk.synthesis.schema import Categorical, Clock, Feature, Numeric, Schema
from hauberk.synthesis.ward import WARD, simulate_ward
from hauberk.synthesis.writing import write_patients

__all__ = [
    "PRESETS",
    "SYNTHESIZERS",
    "WARD",
    "Categorical",
    "Clock",
    "Draft",
    "Encoded",
    "Feature",
    "Numeric",
    "Part",
    "Patients",
    "Preset",
    "Repairs",
    "Schema",
    "Synthesizer",
    "Task",
    "decode",
    "draft_schema",
    "encode",
    "find_preset",
    "find_synthesizer",
    "load_patients",
    "load_synthesizer",
    "read_patients",
    "simulate_ward",
    "validate",
    "write_patients",
]
