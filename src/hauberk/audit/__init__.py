"""Attacks on our own promises: lower bounds on epsilon, certificates that break, members who are found."""

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
from hauberk.audit.membership import (
    MembershipAudit,
    OperatingPoint,
    measure_membership,
    nearness,
    nearness_against_reference,
    scaled_confidences,
)
from hauberk.audit.refutations import REFUTATIONS, Refutation, Stakes
from hauberk.audit.released_membership import (
    ReleasedMembership,
    audit_classifier_membership,
    audit_synthesizer_membership,
)
from hauberk.audit.robustness import (
    RobustnessAudit,
    audit_robustness,
    published_certificates,
    strongest_first,
)
from hauberk.audit.run_audit import RunAudit, RunAuditSettings, audit_run
from hauberk.audit.shadow_models import ShadowScores, audit_by_coins, audit_released, train_shadows
from hauberk.audit.training_audit import PrivacyAudit, audit_training, audit_trainings
from hauberk.audit.truth_table import TruthTable
from hauberk.audit.truth_table_rows import TruthRow

__all__ = [
    "REFUTATIONS",
    "RULES",
    "Game",
    "GaussianEstimate",
    "GradientCanaries",
    "GuessRule",
    "MechanismAudit",
    "MembershipAudit",
    "OperatingPoint",
    "PrivacyAudit",
    "Rates",
    "RecordCanaries",
    "Refutation",
    "ReleasedMembership",
    "RobustnessAudit",
    "RunAudit",
    "RunAuditSettings",
    "ShadowScores",
    "Stakes",
    "Threshold",
    "TruthRow",
    "TruthTable",
    "audit_by_coins",
    "audit_classifier_membership",
    "audit_game",
    "audit_mechanism",
    "audit_released",
    "audit_robustness",
    "audit_run",
    "audit_synthesizer_membership",
    "audit_training",
    "audit_trainings",
    "choose_threshold",
    "fair_coins",
    "gaussian_estimate",
    "many_run_epsilon",
    "measure_membership",
    "nearness",
    "nearness_against_reference",
    "one_run_epsilon",
    "one_run_p_value",
    "published_certificates",
    "release_game",
    "scaled_confidences",
    "sharp_tail",
    "steinke_tail",
    "strongest_first",
    "train_shadows",
    "worst_shift",
]
