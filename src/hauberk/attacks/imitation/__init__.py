"""Adversarial imitation networks (004 chapter 5): one pass of a trained network makes an adversarial example.

    trained = train_ain(model, x, y, validation=(x_val, y_val), classes=10, target=None, settings=SMALL)
    save_imitation(Path("ain.safetensors"), trained.imitation)
    build_attack("ain.safetensors").attack(model, x_test, y_test, radius=0.3)

ATN and AdvGAN stand beside AIN as its baselines; a classifier can be trained against any of them.
"""

from hauberk.attacks.imitation.advgan import AdvGANSettings, train_advgan
from hauberk.attacks.imitation.ain import PAPER, SMALL, AINSettings, EpochRecord, TrainedAIN, train_ain
from hauberk.attacks.imitation.atn import ATNSettings, train_atn
from hauberk.attacks.imitation.attack import ImitationAttack
from hauberk.attacks.imitation.bound import BoundSchedule, BoundWalk
from hauberk.attacks.imitation.evaluation import Quality, evaluate
from hauberk.attacks.imitation.examples import Examples, Recipe, imitated_examples
from hauberk.attacks.imitation.losses import Weights
from hauberk.attacks.imitation.networks import Architecture, ImitationNetwork, PerturbationNetwork
from hauberk.attacks.imitation.saved import Imitation, Origin, load_imitation, save_imitation

__all__ = [
    "PAPER",
    "SMALL",
    "AINSettings",
    "ATNSettings",
    "AdvGANSettings",
    "Architecture",
    "BoundSchedule",
    "BoundWalk",
    "EpochRecord",
    "Examples",
    "Imitation",
    "ImitationAttack",
    "ImitationNetwork",
    "Origin",
    "PerturbationNetwork",
    "Quality",
    "Recipe",
    "TrainedAIN",
    "Weights",
    "evaluate",
    "imitated_examples",
    "load_imitation",
    "save_imitation",
    "train_advgan",
    "train_ain",
    "train_atn",
]
