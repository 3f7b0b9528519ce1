"""Smoothed classifiers and their certificates."""

from hauberk.certify.certificates import tight_radius
from hauberk.certify.confidence import clopper_pearson_lower, majority_p_value
from hauberk.certify.smoothed import ABSTAINED, Certificates, Smoothed, evaluation_mode, largest_radius

__all__ = [
    "ABSTAINED",
    "Certificates",
    "Smoothed",
    "clopper_pearson_lower",
    "evaluation_mode",
    "largest_radius",
    "majority_p_value",
    "tight_radius",
]
