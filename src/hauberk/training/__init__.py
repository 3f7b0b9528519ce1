"""The private training loop and the run folder it writes."""

from hauberk.training.loop import PrivateTrainer, StepDone
from hauberk.training.optimisation import Optimisation
from hauberk.training.run_folder import RunFolder
from hauberk.training.views import NoisyViews

__all__ = ["NoisyViews", "Optimisation", "PrivateTrainer", "RunFolder", "StepDone"]
