"""Networks by name: ``build("lenet", shape=(1, 28, 28), classes=10)``.

What every network here promises, so that privacy and certificates can rest on it (`tests/models` holds each):

- **Records do not mix.** The logits of a record depend on that record alone: no BatchNorm, GroupNorm instead
  (`hauberk.models.normalisation` says why), and no dropout, so training and evaluation mode agree but for
  ``moved-tanh-cnn``, which in evaluation mode asks itself at five places (`hauberk.models.moved_average`).
- **The first affine map stands alone.** Every network is an ``nn.Sequential`` that takes inputs in [0, 1]
  unchanged; nothing but a reshape precedes the first ``Conv2d`` or ``Linear``, and nothing behind it reads
  the input again. A noise layer placed there is the ``post(W x + n)`` of the certificates, and that layer's
  weight is all of ``W``. Of ``moved-tanh-cnn`` that is true in training mode only, and whoever certifies
  noise behind its first layer is refused.
- **Initial weights come from torch's global generator** and from nothing else: whoever seeds it decides them.

Of a network of the user's own (`own_network`) none of this is known; what private training and certificates
need of it is found out where they need it. `freeze_batch_norm`, `train_only` and `load_weights` make a
private head on a public backbone of any network.
"""

from hauberk.models.catalogue import build, describe, names
from hauberk.models.frozen import FrozenBatchNorm, freeze_batch_norm, train_only
from hauberk.models.own import own_network
from hauberk.models.weights import load_weights

__all__ = [
    "FrozenBatchNorm",
    "build",
    "describe",
    "freeze_batch_norm",
    "load_weights",
    "names",
    "own_network",
    "train_only",
]
