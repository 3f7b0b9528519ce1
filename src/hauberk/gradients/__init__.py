"""Per-record gradients, clipped so that each record's influence is bounded."""

from hauberk.gradients.per_record import (
    ClippedSum,
    PerRecordGradients,
    Predict,
    RecordLoss,
    check_bound,
    mean_cross_entropy,
    trainable,
)
from hauberk.gradients.record_mixing import refuse_record_mixing

__all__ = [
    "ClippedSum",
    "PerRecordGradients",
    "Predict",
    "RecordLoss",
    "check_bound",
    "mean_cross_entropy",
    "refuse_record_mixing",
    "trainable",
]
