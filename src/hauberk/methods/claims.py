"""The radius that a paper's own formula gives, from the same votes as the proven one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hauberk.certify import Certificates, Norm, Smoothed, clopper_pearson_lower, evaluation_mode
from hauberk.certify.certificates import find_certificate
from hauberk.certify.first_map import find_first_map
from hauberk.certify.published_gains import published_gain


@dataclass(frozen=True, kw_only=True)
class PublishedRadius:
    """``certificate`` turns votes into a radius; ``one_map``: with the gain of a single feature map.

    ``reason`` says why the claim does not hold, where it does not.
    """

    certificate: str
    one_map: bool
    source: str
    reason: str | None = None

    def gain(self, classifier: Smoothed, norm: Norm, shape: tuple[int, ...]) -> float:
        """Of one feature map as published, else of all that the network reads."""
        if not self.one_map or not classifier.noise.after_map:
            return classifier.gain_of(norm, shape).value
        with evaluation_mode(classifier.model):
            first_map = find_first_map(classifier.model, shape, classifier.noise.first_map)
        return published_gain(classifier.noise, norm, shape=shape, first_map=first_map).value

    def radii(
        self, certificates: Certificates, classifier: Smoothed, shape: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Of every certified input, from its votes; zero where there is no certificate."""
        lower = clopper_pearson_lower(certificates.votes, certificates.samples, certificates.alpha)
        lower = np.where(certificates.abstained, 0.0, lower)
        gain = self.gain(classifier, certificates.norm, shape)
        return find_certificate(self.certificate).radius(lower, gain=gain)


ONE_FEATURE_MAP = (
    "the published radius covers one feature map and the network reads all of them: only the smaller, proven "
    "radius holds"
)
