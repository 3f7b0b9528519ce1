"""000's certificates: a radius for one feature map, and a network that reads all of them.

000 (Eq. 6 and 10) takes the gain of a single feature map of the first convolution. The network behind it
reads all maps, and a perturbation moves all of them at once. With ``m`` equal maps the true gain is
``sqrt(m)`` times the published one, and the published radius is too large by as much.

The construction. A 1 x 1 convolution copies the picture into ``m`` maps; noise follows; the rest is linear:
class 1 where the mean over all maps and pixels is above 1/2. Under the noise this is a half-space, for which
the tight certificate is exact: the label changes just beyond it. Inputs are certified by the published
formula and by the sound one from the same votes, and attacked within the radius. What is confirmed broken is
confirmed by tests on fresh draws (`hauberk.audit.robustness`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from hauberk.attacks import PGD
from hauberk.audit.refutations.base import Refutation, Stakes
from hauberk.audit.robustness import audit_robustness
from hauberk.certify import NoiseLayers, Smoothed
from hauberk.methods.claims import PublishedRadius

REASON = (
    "the published formula takes the gain of one feature map where a network reads all of them: on a "
    "half-space that does, adversarial examples lie within its radius"
)
MAPS, SIDE = 16, 4
CERTIFICATE_ALPHA = 1e-3
CERTIFICATES = {"hgm-pixeldp": "hgm", "secure-sgd": "hgm", "secure-sgd-agm": "hgm-analytic"}
_NOISE = 1.0
_SAMPLES = 1000


class HalfSpace(nn.Module):
    """``mean over maps and pixels > 1/2``, behind a convolution that copies the picture into every map."""

    def __init__(self, maps: int = MAPS) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, maps, 1, bias=False)
        nn.init.ones_(self.conv.weight)

    def forward(self, x: Tensor) -> Tensor:
        above = self.conv(x).flatten(1).mean(1, keepdim=True) - 0.5
        return torch.cat([-above, above], dim=1)


def refute(method: str, variant: str, stakes: Stakes) -> Refutation:
    """``stakes.games`` inputs are certified and attacked: within the radius that ``variant`` gives them."""
    smoothed = Smoothed(HalfSpace(), noise=NoiseLayers(after_first_map=_NOISE), classes=2)
    generator = torch.Generator().manual_seed(stakes.seed)
    level = torch.linspace(0.3, 0.45, stakes.games).view(-1, 1, 1, 1)
    inputs = (level + 0.05 * torch.rand(stakes.games, 1, SIDE, SIDE, generator=generator)).clamp(0, 1)
    proven = smoothed.certify(
        inputs, samples=_SAMPLES, alpha=CERTIFICATE_ALPHA, norm="l2", certificate="tight", seed=stakes.seed
    )
    formula = PublishedRadius(certificate=CERTIFICATES[method], one_map=True, source="000", reason=None)
    published = replace(
        proven, radii=formula.radii(proven, smoothed, tuple(inputs.shape[1:])), certificate="published"
    )
    promised = published if variant == "paper" else proven
    audit = audit_robustness(
        smoothed,
        inputs,
        promised,
        attacks=(PGD(norm="l2", steps=10, draws=4, stop_when_broken=False),),
        alpha=stakes.alpha,
        seed=stakes.seed,
    )
    return Refutation(
        name="one feature map",
        method=method,
        variant=variant,
        attack="attack within the radius, on a half-space that reads every feature map",
        reason=REASON,
        confidence=1 - stakes.alpha,
        claimed_radius=float(np.mean(promised.radii)),
        proven_radius=float(np.mean(proven.radii)),
        tested=audit.tested,
        broken=audit.broken_count,
        certificate_alpha=audit.certificate_alpha,
    )
