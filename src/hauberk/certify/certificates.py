"""Certified radii from bounds on class probabilities (or mean scores) under noise.

A certificate turns two numbers about an input, a lower bound ``pA`` on the top class's probability and an
upper bound ``pB`` on every other class's, and one number about the noise, its gain, into a radius.
Guarantee, the same for all of them: *if the two bounds hold*, the smoothed classifier's answer is the same on
all inputs closer than the radius, in the norm that the gain was computed for. That the bounds hold is the
business of `hauberk.certify.confidence`; ``pA`` and ``pB`` may be mean scores in [0, 1] as well, and the
answer is then the class with the largest mean score.

To add a certificate: one function of ``(pA, pB)`` for a gain of one and one row in ``CERTIFICATES``, which
also enters it into every test of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from hauberk.certify.noise import NoiseKind, Norm
from hauberk.certify.published_certificates import hgm_analytic_radius, hgm_radius, pixeldp_radius
from hauberk.errors import RequestError
from hauberk.mechanisms import checks

Values = NDArray[np.float64]

_ULP_BELOW_ONE = 2.0**-53  # doubles in [1/2, 1) are this far apart
_ALL_NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """One way to turn bounds into a radius: by name, for one kind of noise, for the norms it is proven in."""

    name: str
    kind: NoiseKind
    norms: tuple[Norm, ...]
    source: str
    unit_radius: Callable[[Values, Values], Values]
    """Radius for a gain of one and bounds that separate, ``0 < pB < pA < 1``, in one axis."""

    def radius(
        self, top_lower: ArrayLike, runner_up_upper: ArrayLike | None = None, *, gain: float
    ) -> NDArray[np.float64]:
        """Certified radius, elementwise; zero where the bounds do not separate (a NaN never does).

        ``runner_up_upper`` is for many classes; by default it is the rest, ``1 - top_lower``. ``gain``: for
        Gaussian noise the whitened gain ``L``, for Laplace noise the privacy loss ``rho`` per unit of the
        norm. Bounds nearer to 0 or 1 than 2^-53 are taken as that far away: one that was rounded to certainty
        must not certify an infinite radius.
        """
        checks.positive("the gain of the noise", gain)
        top = np.asarray(top_lower, dtype=np.float64)
        other = 1.0 - top if runner_up_upper is None else np.asarray(runner_up_upper, dtype=np.float64)
        if (top > 1.0).any() or (other < 0.0).any():
            raise RequestError(
                "no probability is bounded from below by more than 1 or from above by less than 0: pass "
                "(lower bound, upper bound) in [0, 1]"
            )
        top, other = np.broadcast_arrays(
            np.minimum(top, 1.0 - _ULP_BELOW_ONE), np.maximum(other, _ULP_BELOW_ONE)
        )
        apart = top > other
        radius = np.zeros(top.shape)
        pairs, row = np.unique(np.stack([top[apart], other[apart]]), axis=1, return_inverse=True)
        radius[apart] = self.unit_radius(pairs[0], pairs[1])[row.reshape(-1)] / gain
        return radius


def _tight(top: Values, other: Values) -> Values:
    """``(Phi^{-1}(pA) - Phi^{-1}(pB)) / 2``: attained by half-spaces, so no larger radius is true for all."""
    return np.asarray((ndtri(top) - ndtri(other)) / 2.0)


def _pure_privacy(top: Values, other: Values) -> Values:
    """``max(1/2 ln(pA/pB), -ln(1 - pA + pB))`` from one comparison of ``x`` with ``x'`` under pure privacy.

    With a loss ``e``, ``pA' >= max(e^-e pA, 1 - e^e (1 - pA))`` and ``pB' <= e^e pB``; the first lower bound
    meets the upper one at the first expression, the second at the second. Holds for any noise whose loss is
    at most ``rho`` per unit of the norm.
    """
    return np.maximum(np.log(top / other) / 2.0, -np.log((1.0 - top) + other))


def _laplace_quantile(probability: Values) -> Values:
    lower = np.minimum(probability, 0.5)
    upper = np.maximum(probability, 0.5)
    return np.where(probability < 0.5, np.log(2.0 * lower), -np.log(2.0 * (1.0 - upper)))


def _laplace_l1(top: Values, other: Values) -> Values:
    """``(Q(pA) - Q(pB)) / 2`` with ``Q`` the quantile of the standard Laplace distribution.

    Two classes (``pB = 1 - pA``): ``-ln(2 (1 - pA))``, the tight radius, and equal to `laplace` there. Many
    classes, ``pB < 1/2 < pA``: ``-1/2 ln(4 (1 - pA) pB)``, which by the inequality of means is at least
    `laplace`'s value; ``pA <= 1/2``: the same as `laplace`, ``1/2 ln(pA/pB)``.

    Proof. Let ``g(x)`` be the mean of a score in [0, 1] under Laplace noise of scale ``b``. Along coordinate
    ``i``, ``dg/dx_i = E[score * sign(noise_i)] / b``, and as the sign has mean zero this is at most
    ``min(g, 1 - g)/b`` in size. So ``Q(g)``, whose derivative is ``1/min(g, 1 - g)``, changes by at most
    ``1/b`` per unit of l1 distance: the top class's falls to no less than ``Q(pA) - r/b``, another's rises to
    no more than ``Q(pB) + r/b``. Attained by classes that are half-spaces across one axis, so nothing larger
    is true. (Noise with a loss of at most ``rho`` per unit of a norm has the same bound on the slope, with
    ``rho`` for ``1/b``: taken in small steps, pure privacy says as much.)
    """
    return (_laplace_quantile(top) - _laplace_quantile(other)) / 2.0


CERTIFICATES: Mapping[str, Certificate] = MappingProxyType(
    {
        certificate.name: certificate
        for certificate in (
            Certificate(
                name="tight",
                kind="gaussian",
                norms=_ALL_NORMS,
                source="Cohen et al. 2019, Theorem 1; for mean scores Salman et al. 2019",
                unit_radius=_tight,
            ),
            Certificate(
                name="hgm",
                kind="gaussian",
                norms=_ALL_NORMS,
                source="000 Eq. 10, divided by epsilon once instead of twice",
                unit_radius=hgm_radius,
            ),
            Certificate(
                name="hgm-analytic",
                kind="gaussian",
                norms=_ALL_NORMS,
                source="000 Eq. 10 with the exact profile of Balle & Wang 2018, Theorem 8",
                unit_radius=hgm_analytic_radius,
            ),
            Certificate(
                name="pixeldp",
                kind="gaussian",
                norms=_ALL_NORMS,
                source="Lecuyer et al. 2019; 000 Eq. 5",
                unit_radius=pixeldp_radius,
            ),
            Certificate(
                name="laplace",
                kind="laplace",
                norms=_ALL_NORMS,
                source="pure differential privacy: Lecuyer et al. 2019; Teng et al. 2020",
                unit_radius=_pure_privacy,
            ),
            Certificate(
                name="laplace-l1",
                kind="laplace",
                norms=("l1",),
                source="two classes: Teng et al. 2020; many classes: the proof beside the formula",
                unit_radius=_laplace_l1,
            ),
        )
    }
)
"""Certificates by the name the command line gives them."""


def find_certificate(name: str) -> Certificate:
    if name not in CERTIFICATES:
        raise RequestError(f"there is no certificate '{name}': choose one of {', '.join(CERTIFICATES)}")
    return CERTIFICATES[name]


def tight_radius(
    top_lower: ArrayLike, runner_up_upper: ArrayLike | None = None, *, gain: float
) -> NDArray[np.float64]:
    """``(Phi^{-1}(pA) - Phi^{-1}(pB)) / (2 L)``: the largest radius that holds for every classifier.

    ``top_lower`` bounds the top class's probability from below, ``runner_up_upper`` every other class's from
    above (default: the rest, ``1 - top_lower``). ``gain`` is the whitened gain ``L`` of the noise layer; for
    input noise it is ``1 / sigma``. Zero where the bounds do not separate (Cohen et al. 2019, Theorem 1).

    Guarantee: if the two bounds hold, the smoothed classifier's answer is the same within the radius.
    """
    return CERTIFICATES["tight"].radius(top_lower, runner_up_upper, gain=gain)


def needed_probability(certificate: Certificate, radius: float, *, gain: float) -> float:
    """The smallest probability of the top class that certifies ``radius`` when the others have the rest.

    It is the smallest double in [1/2, 1) at which the certificate's own arithmetic says so, and that was
    checked: ``certificate.radius(p, gain=gain) >= radius``. 1.0 if no probability below one suffices.
    """
    checks.nonnegative("the radius", radius)

    def certifies(numerators: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(certificate.radius(numerators * _ULP_BELOW_ONE, gain=gain) >= radius)

    low, high = 2**52, 2**53 - 1  # over 2^53 these are all doubles in [1/2, 1)
    if not certifies(np.array([high]))[0]:
        return 1.0
    while low < high:  # cut in 256 parts at a time: arrays cost a certificate little more than numbers
        points = np.unique(low + (high - low) * np.arange(257) // 256)
        first = int(certifies(points).argmax())
        low, high = (int(points[first - 1]) + 1 if first else int(points[0])), int(points[first])
    return high * _ULP_BELOW_ONE
