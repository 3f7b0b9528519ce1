"""Moved copies: whole pixels, nothing wraps around, and a record moves by its own chances alone."""

import pytest
import torch

from hauberk.errors import RequestError
from hauberk.training import Moves, NoisyViews

KEY = (3, 4)


def moved(
    x: torch.Tensor, moves: Moves, *, records: torch.Tensor, step: int = 0, views: int = 6
) -> torch.Tensor:
    return moves(x, records=records, step=step, key=KEY, views=views)


def every_move(image: torch.Tensor, *, shift: int, flip: bool) -> list[torch.Tensor]:
    """All images that a copy may be."""
    height, width = image.shape[-2:]
    padded = torch.nn.functional.pad(image, (shift,) * 4)
    mirrored = [padded, padded.flip(-1)] if flip else [padded]
    sizes = range(2 * shift + 1)
    return [one[..., i : i + height, j : j + width] for one in mirrored for i in sizes for j in sizes]


@pytest.mark.parametrize(("shift", "flip"), [(2, False), (0, True), (1, True)])
def test_a_copy_is_the_image_moved_by_whole_pixels(shift: int, flip: bool) -> None:
    x = torch.rand(5, 2, 4, 6)
    copies = moved(x, Moves(shift=shift, flip=flip), records=torch.arange(5), views=40)
    assert copies.shape == (5, 40, 2, 4, 6)
    for image, own in zip(x, copies, strict=True):
        possible = torch.stack(every_move(image, shift=shift, flip=flip))
        seen = {int((possible == copy).flatten(1).all(1).nonzero()[0]) for copy in own}
        assert len(seen) > 1  # not all alike


def test_every_move_is_as_likely_as_any_other() -> None:
    x = torch.rand(1, 1, 3, 3)
    copies = moved(x, Moves(shift=1), records=torch.arange(1), views=9000)[0]
    possible = every_move(x[0], shift=1, flip=False)
    counts = torch.tensor([int((copies == one).flatten(1).all(1).sum()) for one in possible])
    assert counts.sum() == 9000
    assert (counts - 1000).abs().max() < 150  # 5 standard deviations


def test_a_record_moves_by_its_own_chances_alone() -> None:
    x = torch.rand(6, 1, 5, 5)
    moves, records = Moves(shift=2, flip=True), torch.arange(6)
    together = moved(x, moves, records=records, step=7)
    rows = torch.tensor([4, 1])
    assert torch.equal(moved(x[rows], moves, records=records[rows], step=7), together[rows])
    assert not torch.equal(moved(x, moves, records=records, step=8), together)


def test_noise_stays_the_same_with_and_without_moves() -> None:
    x, records = torch.rand(3, 1, 4, 4), torch.arange(3)
    plain = NoisyViews(sigma=0.5, views=4)
    both = NoisyViews(sigma=0.5, views=4, moves=Moves(shift=1))
    at = {"records": records, "step": 2, "key": KEY}
    images = moved(x, Moves(shift=1), records=records, step=2, views=4)
    assert torch.allclose(both(x, **at) - images, plain(x, **at) - x.unsqueeze(1), atol=1e-6)


def test_tables_are_not_moved() -> None:
    with pytest.raises(RequestError, match="leave them out for tables"):
        moved(torch.rand(3, 7), Moves(shift=1), records=torch.arange(3))
    with pytest.raises(RequestError, match="shift must not be negative"):
        Moves(shift=-1)


def test_a_clean_copy_is_the_record_and_the_others_are_noisy() -> None:
    x, records = torch.rand(3, 1, 4, 4), torch.arange(3)
    at = {"records": records, "step": 2, "key": KEY}
    views = NoisyViews(sigma=0.5, views=4, clean=True)(x, **at)
    assert torch.equal(views[:, 0], x)
    assert torch.equal(views[:, 1:], NoisyViews(sigma=0.5, views=3)(x, **at))
    with pytest.raises(RequestError, match="at least 2 views"):
        NoisyViews(sigma=0.5, views=1, clean=True)
