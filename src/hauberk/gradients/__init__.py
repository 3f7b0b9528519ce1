"""Per-record gradients, clipped so that each record's influence is bounded."""

from hauberk.gradients.choice import GeneralPathNotice
from hauberk.gradients.clipped import ClippedGradients, ClippedSum
from hauberk.gradients.clipping import (
    AdaptiveClip,
    AutomaticClip,
    Clipping,
    FlatClip,
    PerLayerClip,
    check_bound,
)
from hauberk.gradients.general import trainable
from hauberk.gradients.geometry import Geometry
from hauberk.gradients.losses import Predict, RecordLoss, ScoreLoss, Views, mean_cross_entropy
from hauberk.gradients.memory import parse_memory
from hauberk.gradients.record_mixing import refuse_record_mixing
from hauberk.gradients.rules import LayerCall, Materialised, OuterProducts, PerRecordGradient, gradient_rule

__all__ = [
    "AdaptiveClip",
    "AutomaticClip",
    "ClippedGradients",
    "ClippedSum",
    "Clipping",
    "FlatClip",
    "GeneralPathNotice",
    "Geometry",
    "LayerCall",
    "Materialised",
    "OuterProducts",
    "PerLayerClip",
    "PerRecordGradient",
    "Predict",
    "RecordLoss",
    "ScoreLoss",
    "Views",
    "check_bound",
    "gradient_rule",
    "mean_cross_entropy",
    "parse_memory",
    "refuse_record_mixing",
    "trainable",
]
