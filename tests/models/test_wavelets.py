"""Wavelet features: blind to constants, alike under quarter turns, and the same for every record alone."""

import math

import pytest
import torch

from hauberk.models.wavelets import ORIENTATIONS, WaveletModuli, morlet


@pytest.mark.parametrize(("scale", "size"), [(0, 7), (1, 13)])
def test_a_wavelet_does_not_see_a_constant_and_ends_within_its_filter(scale: int, size: int) -> None:
    for turn in range(ORIENTATIONS):
        angle = math.pi * turn / ORIENTATIONS
        wavelet = morlet(scale, angle, size)
        assert wavelet.sum().abs() < 1e-12
        whole = morlet(scale, angle, size + 20)
        assert (
            whole.abs().square().sum() - wavelet.abs().square().sum()
        ).abs() < 0.02 * whole.abs().square().sum()


def test_a_constant_image_has_moduli_only_at_its_border() -> None:
    features = WaveletModuli(1)(torch.full((1, 1, 64, 64), 0.7))
    inside = features[..., 3:-3, 3:-3]
    assert inside[:, : 2 * ORIENTATIONS].abs().max() < 1e-4
    assert torch.allclose(inside[:, 2 * ORIENTATIONS :], torch.tensor(0.7), atol=1e-5)


def test_a_wave_is_seen_by_the_wavelet_of_its_direction_and_scale() -> None:
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    for scale in (0, 1):
        for turn in range(ORIENTATIONS):
            angle = math.pi * turn / ORIENTATIONS
            phase = (3 * math.pi / 4 / 2**scale) * (x * math.cos(angle) + y * math.sin(angle))
            features = WaveletModuli(1)(0.5 + 0.5 * phase.cos().view(1, 1, 64, 64))
            strongest = features[0, : 2 * ORIENTATIONS, 4:-4, 4:-4].mean((1, 2)).argmax()
            assert int(strongest) == scale * ORIENTATIONS + turn


def test_channels_and_records_do_not_meet() -> None:
    bank = WaveletModuli(3)
    x = torch.rand(4, 3, 20, 23)
    features = bank(x)
    assert features.shape == (4, 3 * 17, 5, 6)
    assert torch.allclose(bank(x[2:3]), features[2:3], atol=1e-6)
    single = WaveletModuli(1)(x[:, 1:2])
    assert torch.allclose(features[:, 17:34], single, atol=1e-6)
    assert not list(bank.parameters())
    assert not bank.state_dict()
