"""One file per method; each reads like its algorithm and is assembled from the rooms below."""

from hauberk.methods import layer_rules as _layer_rules  # noqa: F401  (importing registers the rules)
from hauberk.methods.adaclip import AdaClip
from hauberk.methods.adlm import AdLM
from hauberk.methods.base import Method
from hauberk.methods.catalogue import METHODS, MethodRow
from hauberk.methods.directional import Directional
from hauberk.methods.dp_sgd import DPSGD
from hauberk.methods.pixeldp import HGMPixelDP, PixelDP
from hauberk.methods.private_smoothing import PrivateSmoothing
from hauberk.methods.robustness_question import Question
from hauberk.methods.run import AuditSettings, Run
from hauberk.methods.secure_sgd import SecureSGD, SecureSGDAGM
from hauberk.methods.stobatch import StoBatch
from hauberk.methods.training import load_run
from hauberk.methods.transdenoiser import TransDenoiser
from hauberk.methods.verified_inference import verify

__all__ = [
    "DPSGD",
    "METHODS",
    "AdLM",
    "AdaClip",
    "AuditSettings",
    "Directional",
    "HGMPixelDP",
    "Method",
    "MethodRow",
    "PixelDP",
    "PrivateSmoothing",
    "Question",
    "Run",
    "SecureSGD",
    "SecureSGDAGM",
    "StoBatch",
    "TransDenoiser",
    "load_run",
    "verify",
]
