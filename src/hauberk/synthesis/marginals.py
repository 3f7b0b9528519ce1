"""Class-conditional marginals with independent sampling: the baseline that every clinic will ask about.

Two Gaussian releases, and nothing else touches the records:

1. the pooled scales (`hauberk.synthesis.scales`), by which each number's distribution is cut into bins of
   equal mass; they also hold lengths, first times and gaps between times;
2. by class of the outcome: static features, and for each temporal feature and each window of time in which
   bin its values lie and how often it is observed (`hauberk.synthesis.class_marginals`).

Both are sums to which a patient contributes one vector of l2 norm at most 1 (proof in
`hauberk.synthesis.bounded_release`), so with noise multipliers ``z_1, z_2`` they are together one release
with ``mu^2 = z_1^-2 + z_2^-2``. Both get the least noise (within 0.01 %) with which the accountant proves
(epsilon, delta) for adding or removing one patient; ``scales_share`` of ``mu^2`` is the first release's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

from torch import Tensor

from hauberk.accounting import Event, GaussianEvent, Ledger, UnprotectedEvent, prove
from hauberk.accounting.plan import least_noise
from hauberk.progress import Progress
from hauberk.randomness import choose_randomness
from hauberk.synthesis.base import Sampler, Synthesizer, Trained
from hauberk.synthesis.class_marginals import ClassMarginals, MarginalsSettings, class_layout
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.scales import Scales, scales_layout
from hauberk.training.run_folder import RunFolder

SCALES, COUNTS = "scales/", "counts/"


class Marginals(Synthesizer):
    """Two releases and independent sampling; seconds to learn and to sample."""

    name = "marginals"
    settings_kind = MarginalsSettings
    settings: MarginalsSettings
    claim_source = "accounting of two Gaussian releases, to each of which a patient gives one bounded vector"

    @cached_property
    def noise_multipliers(self) -> tuple[float, float]:
        """Of the two releases; 0 without a budget."""
        budget, share = self.task.budget, self.settings.scales_share
        if budget is None:
            return 0.0, 0.0
        roots = (math.sqrt(share), math.sqrt(1 - share))

        def epsilon(noise: float) -> float:
            events = [GaussianEvent(noise_multiplier=noise / root) for root in roots]
            return prove(events, budget.delta).epsilon

        noise = least_noise(epsilon, epsilon=budget.epsilon, delta=budget.delta)
        return noise / roots[0], noise / roots[1]

    def planned_events(self) -> tuple[Event, ...]:
        return tuple(
            GaussianEvent(noise_multiplier=noise) if noise > 0 else UnprotectedEvent()
            for noise in self.noise_multipliers
        )

    def train(
        self, patients: Patients, *, folder: RunFolder | None, resume: bool, progress: Progress
    ) -> Trained:
        """An interrupted run begins again, and what it may have released stays counted."""
        randomness = choose_randomness(self.task.noise_seed)
        ledger = Ledger(reproducible=randomness.reproducible)
        if resume and folder is not None:
            ledger = folder.read_events()
            ledger.reproducible = ledger.reproducible or randomness.reproducible
        for event in self.planned_events():
            ledger.record(event)
        if folder is not None:
            folder.write_events(ledger, delta=self.task.delta)
        first, second = self.noise_multipliers
        progress("counting", 0, 2)
        scales = Scales.release(patients, noise_multiplier=first, randomness=randomness, step=0)
        progress("counting", 1, 2)
        marginals = ClassMarginals.release(
            patients,
            scales,
            settings=self.settings,
            noise_multiplier=second,
            randomness=randomness,
            step=1,
        )
        progress("counting", 2, 2)
        tensors = {f"{SCALES}{name}": counts for name, counts in scales.counts.items()}
        tensors |= {f"{COUNTS}{name}": counts for name, counts in marginals.counts.items()}
        return Trained(tensors=tensors, ledger=ledger)

    def sampler(self, tensors: Mapping[str, Tensor]) -> Sampler:
        first, second = self.noise_multipliers
        scales = Scales(
            self.task.schema,
            _blocks(tensors, SCALES, [block.name for block in scales_layout(self.task.schema).blocks]),
            noise_multiplier=first,
        )
        names = [block.name for block in class_layout(scales, self.settings).blocks]
        marginals = ClassMarginals(
            scales, _blocks(tensors, COUNTS, names), settings=self.settings, noise_multiplier=second
        )
        return marginals.sample


def _blocks(tensors: Mapping[str, Tensor], prefix: str, names: list[str]) -> dict[str, Tensor]:
    return {name: tensors[f"{prefix}{name}"] for name in names if f"{prefix}{name}" in tensors}
