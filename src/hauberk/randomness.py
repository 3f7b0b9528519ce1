"""Where random numbers come from, and which of them may be known to whom.

Three kinds of randomness drive private training, and they have different needs:

- *privacy noise* and *sampling coins* carry the guarantee. They come from a cryptographic generator that the
  operating system seeds, so that nobody can replay them. (A ``torch.Generator`` would not do: torch's CPU
  generator keeps only 32 bits of its seed, few enough to try them all against a released gradient.)
- *view noise* (the noisy copies of a record) must depend on nothing but the step and the record itself, so
  that adding a neighbour does not shift anybody else's noise. A counter-based generator gives exactly that:
  the noise of (step, record, view) is a pure function of a key.
- with a *noise seed* everything becomes a pure function of the seed. Runs can then be repeated and resumed
  bit for bit, and nothing can be proven about them: who has the seed can subtract the noise.

The counter-based generator is Philox4x32-10 (Salmon et al., SC 2011) on int64 tensors, on any device.
"""

from __future__ import annotations

import hashlib
import math
import os
import ssl
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hauberk.errors import RequestError

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_PIECE = 1 << 17

Key = tuple[int, int]


def check_seed(seed: int) -> int:
    """The seed, if every generator takes it: another one would be cut, or refused after hours of work."""
    if not 0 <= seed < 2**63:
        raise RequestError("seeds are whole numbers from 0 to 2^63 - 1")
    return seed


def philox(key: Key, counter: Sequence[Tensor]) -> list[Tensor]:
    """Four independent 32-bit words for every counter, as int64 tensors in ``[0, 2^32)``.

    The counter is four broadcastable int64 tensors. int64 products wrap around in two's complement, which
    keeps the low 64 bits exact: all that the unsigned 32 x 32 -> 64 bit product needs.
    """
    first, second = key
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = (product1 >> 32).bitwise_and_(_WORD).bitwise_xor_(c1).bitwise_xor_(first)
        c2 = (product0 >> 32).bitwise_and_(_WORD).bitwise_xor_(c3).bitwise_xor_(second)
        c1, c3 = product1.bitwise_and_(_WORD), product0.bitwise_and_(_WORD)
        first, second = (first + _KEY_STEPS[0]) & _WORD, (second + _KEY_STEPS[1]) & _WORD
    return [c0, c1, c2, c3]


def derive_key(seed: int | bytes, purpose: str) -> Key:
    """A 64-bit key for one purpose; different purposes never share random numbers."""
    material = seed if isinstance(seed, bytes) else str(seed).encode()
    digest = hashlib.sha256(purpose.encode() + b"\0" + material).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def _box_muller(radial: Tensor, angular: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent standard normals from two independent uniforms in (0, 1)."""
    radius = torch.sqrt(-2.0 * torch.log(radial))
    angle = 2.0 * math.pi * angular
    return radius * torch.cos(angle), radius * torch.sin(angle)


def _uniform32(word: Tensor) -> Tensor:
    return (word.to(torch.float32) + 0.5) * 2.0**-32


def keyed_normals(
    key: Key, *, step: int, records: Tensor, views: int, shape: tuple[int, ...], first_view: int = 0
) -> Tensor:
    """Standard normals of shape ``(len(records), views, *shape)`` in float32.

    Row ``i`` is a function of ``(key, step, records[i])`` alone, whatever else is in the batch. Views have
    numbers: ``first_view`` gives others than a call that begins at 0.
    """
    elements = math.prod(shape)
    blocks = -(-elements // 4)
    device = records.device
    normals = torch.empty(len(records), views, blocks, 4, device=device)
    # on a CPU in pieces that stay in the cache; a GPU minds every launch more
    piece = max(1, _PIECE // (4 * views * blocks)) if device.type == "cpu" else max(1, len(records))
    for some, into in zip(records.split(piece), normals.split(piece), strict=True):
        words = philox(
            key,
            (
                torch.arange(blocks, device=device).view(1, 1, blocks),
                some.view(-1, 1, 1),
                torch.tensor(step, device=device).view(1, 1, 1),
                torch.arange(first_view, first_view + views, device=device).view(1, views, 1),
            ),
        )
        for place in (0, 2):
            pair = _box_muller(_uniform32(words[place]), _uniform32(words[place + 1]))
            into[..., place], into[..., place + 1] = pair
    return normals.view(len(records), views, 4 * blocks)[..., :elements].reshape(len(records), views, *shape)


def _stream(key: Key, *, step: int, count: int) -> Tensor:
    """``count`` uniform 64-bit integers (as signed int64), a pure function of the key and the step.

    From numpy's Philox4x64-10: the same construction as above with wider words, compiled. Coins and noise of
    a whole step are long streams, for which the int64 tensors above took more time than the gradients.
    """
    generator = np.random.Philox(counter=[0, 0, step, 0], key=list(key))
    return torch.from_numpy(generator.random_raw(count).view(np.int64))


def _system_words(count: int) -> Tensor:
    """``count`` uniform 64-bit integers (as signed int64).

    From OpenSSL's generator, a cryptographic one (AES-256 in counter mode) that the operating system seeds
    and reseeds: five times as fast as asking the system for every byte, which took a tenth of a step.
    """
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    return torch.frombuffer(bytearray(ssl.RAND_bytes(8 * count)), dtype=torch.int64)


def _normals(words: Tensor) -> Tensor:
    """An even number of standard normals by 53 bits of each word, in float64, for the sake of the tails."""
    uniform = ((words & 0x1FFFFFFFFFFFFF).to(torch.float64) + 0.5) * 2.0**-53
    half = len(words) // 2
    return torch.cat(_box_muller(uniform[:half], uniform[half:]))


def _system_normals(count: int) -> Tensor:
    """``count`` standard normals, made in pieces that stay in the cache."""
    normals = torch.empty(count + count % 2, dtype=torch.float64)
    for start in range(0, len(normals), _PIECE):
        piece = normals[start : start + _PIECE]
        piece.copy_(_normals(_system_words(len(piece))))
    return normals[:count]


def _device_normals(seed: int, count: int, device: torch.device) -> Tensor:
    """Expands a 64-bit seed on the device: torch's generator is Philox there and keeps all 64 bits of it."""
    generator = torch.Generator(device)
    generator.manual_seed(seed)
    return torch.randn(count, generator=generator, dtype=torch.float64, device=device)


class Randomness(Protocol):
    """What training needs of chance."""

    reproducible: bool

    def coins(self, *, step: int, count: int, probability: float, first: int = 0, every: int = 1) -> Tensor:
        """``count`` independent Bernoulli draws as a bool tensor on the CPU.

        They are the coins of the records ``first``, ``first + every``, ``first + 2 every``, and so on.
        """

    def normals(self, *, step: int, count: int, device: torch.device) -> Tensor:
        """``count`` standard normals for the privacy noise of this step, float64."""

    def view_key(self) -> Key:
        """The key of the view noise; the same during a whole run."""

    def layer_seed(self, *, step: int) -> int:
        """A seed for layers that draw by themselves (dropout) during this step."""


def _threshold(probability: float) -> int:
    """Coins compare 63-bit integers with this; rounding is down, never above the declared probability."""
    return math.floor(probability * 2.0**63)


class SystemRandomness:
    """Noise and coins from the operating system: the default, and the only one with a proof."""

    reproducible = False

    def __init__(self, *, view_key: Key | None = None) -> None:
        self._view_key = view_key or derive_key(os.urandom(32), "views")

    def coins(self, *, step: int, count: int, probability: float, first: int = 0, every: int = 1) -> Tensor:
        if probability >= 1.0:
            return torch.ones(count, dtype=torch.bool)
        return (_system_words(count) & 0x7FFFFFFFFFFFFFFF) < _threshold(probability)

    def normals(self, *, step: int, count: int, device: torch.device) -> Tensor:
        if device.type != "cpu":
            # Moving fresh bytes to the device every step would dominate large models: the device expands a
            # 64-bit key that the operating system draws anew for every step and that is used only once.
            return _device_normals(int.from_bytes(os.urandom(8), "little"), count, device)
        return _system_normals(count)

    def view_key(self) -> Key:
        return self._view_key

    def layer_seed(self, *, step: int) -> int:
        return int.from_bytes(os.urandom(4), "little")


class SeededRandomness:
    """Everything from one seed: repeatable, and therefore without any proven privacy."""

    reproducible = True

    def __init__(self, seed: int) -> None:
        self._keys = {purpose: derive_key(seed, purpose) for purpose in ("coins", "noise", "views", "layers")}

    def coins(self, *, step: int, count: int, probability: float, first: int = 0, every: int = 1) -> Tensor:
        if probability >= 1.0:
            return torch.ones(count, dtype=torch.bool)
        words = _stream(self._keys["coins"], step=step, count=first + every * count)
        return (words[first::every][:count] & 0x7FFFFFFFFFFFFFFF) < _threshold(probability)

    def normals(self, *, step: int, count: int, device: torch.device) -> Tensor:
        """A noise seed gives the same noise on the same kind of device, not on another."""
        if device.type != "cpu":
            seed = int(_stream(self._keys["noise"], step=step, count=1)) % 2**64
            return _device_normals(seed, count, device)
        return _normals(_stream(self._keys["noise"], step=step, count=count + count % 2))[:count]

    def view_key(self) -> Key:
        return self._keys["views"]

    def layer_seed(self, *, step: int) -> int:
        return int(_stream(self._keys["layers"], step=step, count=1)) & _WORD


def choose_randomness(noise_seed: int | None) -> Randomness:
    """The operating system's unless a noise seed was asked for."""
    return SystemRandomness() if noise_seed is None else SeededRandomness(noise_seed)
