"""Smoothed classifiers and their certificates."""

from hauberk.certify.certificates import (
    CERTIFICATES,
    Certificate,
    find_certificate,
    needed_probability,
    tight_radius,
)
from hauberk.certify.confidence import clopper_pearson_lower, clopper_pearson_upper, majority_p_value
from hauberk.certify.evaluation import evaluation_mode
from hauberk.certify.gains import Gain
from hauberk.certify.metrics import Metrics, measure
from hauberk.certify.noise import NoiseLayers, Norm
from hauberk.certify.rules import AtLeast, FixedDraws, Rule, Within
from hauberk.certify.smoothed import ABSTAINED, Certificates, Smoothed, largest_radius

__all__ = [
    "ABSTAINED",
    "CERTIFICATES",
    "AtLeast",
    "Certificate",
    "Certificates",
    "FixedDraws",
    "Gain",
    "Metrics",
    "NoiseLayers",
    "Norm",
    "Rule",
    "Smoothed",
    "Within",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "evaluation_mode",
    "find_certificate",
    "largest_radius",
    "majority_p_value",
    "measure",
    "needed_probability",
    "tight_radius",
]
