"""Attacks on privacy promises: lower bounds on epsilon, each with the probability that it is wrong."""

from hauberk.audit.bounds import (
    GaussianEstimate,
    Rates,
    Threshold,
    choose_threshold,
    gaussian_estimate,
    many_run_epsilon,
    one_run_epsilon,
    one_run_p_value,
    sharp_tail,
    steinke_tail,
)
from hauberk.audit.canaries import GradientCanaries, RecordCanaries, fair_coins
from hauberk.audit.guesses import RULES, GuessRule
from hauberk.audit.mechanism_audit import (
    Game,
    MechanismAudit,
    audit_game,
    audit_mechanism,
    release_game,
    worst_shift,
)
from hauberk.audit.training_audit import PrivacyAudit, audit_training, audit_trainings

__all__ = [
    "RULES",
    "Game",
    "GaussianEstimate",
    "GradientCanaries",
    "GuessRule",
    "MechanismAudit",
    "PrivacyAudit",
    "Rates",
    "RecordCanaries",
    "Threshold",
    "audit_game",
    "audit_mechanism",
    "audit_training",
    "audit_trainings",
    "choose_threshold",
    "fair_coins",
    "gaussian_estimate",
    "many_run_epsilon",
    "one_run_epsilon",
    "one_run_p_value",
    "release_game",
    "sharp_tail",
    "steinke_tail",
    "worst_shift",
]
