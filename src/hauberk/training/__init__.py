"""The private training loop and the run folder it writes."""

from hauberk.training.layer_noise import LayerNoiseViews, NoiseAfter, SharedNoiseViews, hold_norm, map_norm
from hauberk.training.loop import PrivateTrainer, StepDone
from hauberk.training.optimisation import Optimisation
from hauberk.training.run_folder import RunFolder
from hauberk.training.views import Moves, NoisyViews, RecordViews

__all__ = [
    "LayerNoiseViews",
    "Moves",
    "NoiseAfter",
    "NoisyViews",
    "Optimisation",
    "PrivateTrainer",
    "RecordViews",
    "RunFolder",
    "SharedNoiseViews",
    "StepDone",
    "hold_norm",
    "map_norm",
]
