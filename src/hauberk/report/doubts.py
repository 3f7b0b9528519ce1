"""What speaks against a claim or a proof: other columns of the same card."""

from __future__ import annotations

from scipy.special import bdtrc

from hauberk.accounting.card import PrivacyColumns, RobustnessColumns, RobustnessObservation

_ROUNDING = 1e-6  # relative; claimed and proven may come from two sums of the same numbers
_BAD_LUCK = 1e-3  # breaks rarer than this are not explained by the certificates' own error rate


def doubt_about_claimed_privacy(privacy: PrivacyColumns) -> str | None:
    if privacy.claimed is None:
        return None
    if audit_exceeds(privacy, privacy.claimed.epsilon):
        return "refuted by the audit"
    return "less than what is proven" if claims_smaller_epsilon(privacy) else None


def audit_exceeds(privacy: PrivacyColumns, epsilon: float) -> bool:
    return privacy.observed is not None and privacy.observed.epsilon_lower > epsilon


def claims_smaller_epsilon(privacy: PrivacyColumns) -> bool:
    """Comparable at the same delta only."""
    claimed, proven = privacy.claimed, privacy.proven
    return (
        claimed is not None
        and proven is not None
        and claimed.delta == proven.delta
        and claimed.epsilon < proven.epsilon * (1 - _ROUNDING)
    )


def claims_larger_radius(robustness: RobustnessColumns) -> bool:
    claimed, proven = robustness.claimed, robustness.proven
    return (
        claimed is not None
        and proven is not None
        and claimed.average_radius > proven.average_certified_radius * (1 + _ROUNDING)
    )


def doubt_about_claimed_radius(robustness: RobustnessColumns) -> str | None:
    if beyond_chance(robustness, robustness.observed_of_claimed):
        return "refuted by the attack"
    return "larger than what is proven" if claims_larger_radius(robustness) else None


def more_breaks_than_chance(robustness: RobustnessColumns) -> bool:
    return beyond_chance(robustness, robustness.observed)


def beyond_chance(robustness: RobustnessColumns, attack: RobustnessObservation | None) -> bool:
    """Breaks inside the radius are compared with Binomial(tested, alpha), one-sided."""
    proof = robustness.proven
    if proof is None or attack is None or attack.broken == 0 or attack.fraction_of_certified > 1:
        return False
    return bool(bdtrc(attack.broken - 1, attack.tested, proof.alpha) < _BAD_LUCK)
