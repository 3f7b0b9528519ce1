"""Adversarial examples against randomised classifiers."""

from hauberk.attacks.inside_radius import InsideRadius, attack_inside_radius
from hauberk.attacks.pgd import NoisyPGD, project_l2

__all__ = ["InsideRadius", "NoisyPGD", "attack_inside_radius", "project_l2"]
