"""Hauberk: deep learning that is differentially private and certifiably robust, and says what is proven.

>>> import hauberk as hb
>>> plan = hb.PrivacyPlan.calibrate(epsilon=3.0, delta=1e-5, records=60_000, batch=2048, epochs=40)
>>> plan.epsilon() <= 3.0
True
"""

from hauberk import (
    accounting,
    attacks,
    certify,
    data,
    gradients,
    mechanisms,
    methods,
    models,
    report,
    training,
)
from hauberk.accounting import Card, PrivacyPlan
from hauberk.certify import Smoothed
from hauberk.data import load as load_data
from hauberk.errors import RequestError
from hauberk.methods import load_run as load
from hauberk.version import __version__

__all__ = [
    "Card",
    "PrivacyPlan",
    "RequestError",
    "Smoothed",
    "__version__",
    "accounting",
    "attacks",
    "certify",
    "data",
    "experiments",
    "gradients",
    "load",
    "load_data",
    "mechanisms",
    "methods",
    "models",
    "report",
    "training",
]
