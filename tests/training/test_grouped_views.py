"""Several images of a person: one gradient, the mean of its images' own, clipped once."""

import pytest
import torch
from torch import Tensor, nn

from hauberk import models
from hauberk.accounting import PrivacyPlan
from hauberk.gradients import ClippedGradients, FlatClip, ScoreLoss, mean_cross_entropy
from hauberk.gradients.choice import PathChoice
from hauberk.methods.smoothing_losses import SmoothingLoss
from hauberk.randomness import SeededRandomness
from hauberk.training import Moves, NoisyViews, Optimisation, PrivateTrainer
from hauberk.training.grouped_views import GroupedViews, grouped_loss

CLASSES, MOST, KEY = 3, 3, (5, 7)
SHAPE = (1, 14, 14)
LOSSES = {
    "cross-entropy": mean_cross_entropy,
    "consistency and macer": SmoothingLoss(sigma=0.2, consistency=1.0, macer=0.5).record_loss(),
}
PERSONS = {
    "one image": [0, -1, -1],
    "two images of two classes": [1, 2, -1],
    "all places": [2, 2, 0],
}


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return models.build("small-tanh-cnn", shape=SHAPE, classes=CLASSES)


def persons(labels: list[list[int]], *, filling: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(len(labels), MOST, *SHAPE, generator=generator), torch.tensor(labels)
    x[y < 0] = filling
    return x, y


def summed(
    network: nn.Module,
    loss: ScoreLoss,
    views: Tensor,
    y: Tensor,
    *,
    clip: float = 1e9,
    path: PathChoice = "fast",
) -> dict[str, Tensor]:
    return ClippedGradients(network, loss, clipping=FlatClip(clip), path=path).clipped_sum(views, y).gradients


def norm_of(gradients: dict[str, Tensor]) -> float:
    return float(torch.cat([each.flatten() for each in gradients.values()]).norm())


@pytest.mark.parametrize("path", ["fast", "general"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("labels", PERSONS.values(), ids=PERSONS)
def test_a_persons_gradient_is_the_mean_of_its_images_gradients(
    network: nn.Module, labels: list[int], loss: ScoreLoss, path: PathChoice
) -> None:
    noisy = NoisyViews(sigma=0.2, views=2)
    x, y = persons([labels])
    who = torch.tensor([11])
    views = GroupedViews(of_one=noisy)(x, records=who, step=4, key=KEY)
    assert isinstance(views, Tensor)
    assert views.shape == (1, MOST * 2, *SHAPE)
    together = summed(network, grouped_loss(loss), views, y, path=path)
    own = [place for place, label in enumerate(labels) if label >= 0]
    alone = [
        summed(
            network,
            loss,
            noisy(x[:, place], records=who * MOST + place, step=4, key=KEY),
            y[:, place],
            path="general",
        )
        for place in own
    ]
    for name, gradient in together.items():
        wanted = torch.stack([each[name] for each in alone]).mean(0)
        torch.testing.assert_close(gradient, wanted, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_what_stands_in_an_empty_place_has_no_influence_bit_for_bit(
    network: nn.Module, loss: ScoreLoss
) -> None:
    sums = []
    for filling in (0.0, 1.0, 123.0):
        x, y = persons([[0, -1, -1], [1, 2, -1]], filling=filling)
        views = GroupedViews(of_one=NoisyViews(sigma=0.2, views=2))(
            x, records=torch.tensor([0, 1]), step=0, key=KEY
        )
        assert isinstance(views, Tensor)
        sums.append(summed(network, grouped_loss(loss), views, y, clip=0.05))
    for other in sums[1:]:
        assert all(torch.equal(sums[0][name], other[name]) for name in sums[0])


def test_a_person_more_moves_the_sum_by_the_bound_at_most(network: nn.Module) -> None:
    """Neighbours differ in one person with all images, here with all places filled."""
    bound = 0.05
    views_of = GroupedViews(of_one=NoisyViews(sigma=0.2, views=2))
    x, y = persons([[0, -1, -1], [1, 2, -1], [2, 2, 0]])
    everybody = views_of(x, records=torch.arange(3), step=0, key=KEY)
    others = views_of(x[:2], records=torch.arange(2), step=0, key=KEY)
    assert isinstance(everybody, Tensor)
    assert isinstance(others, Tensor)
    assert torch.equal(everybody[:2], others)  # the third person shifts nobody's noise
    with_third, without = (
        summed(network, grouped_loss(mean_cross_entropy), views, y[: len(views)], clip=bound)
        for views in (everybody, others)
    )
    moved = norm_of({name: with_third[name] - without[name] for name in without})
    assert 0.9 * bound < moved <= bound * (1 + 1e-5)
    three_images = [
        summed(
            network,
            mean_cross_entropy,
            NoisyViews(sigma=0.2, views=2)(
                x[2, place : place + 1], records=torch.tensor([6 + place]), step=0, key=KEY
            ),
            y[2, place : place + 1],
            clip=bound,
        )
        for place in range(MOST)
    ]
    apart = {name: sum(each[name] for each in three_images) for name in without}
    assert norm_of(apart) > 1.5 * bound  # as three records the same person would have moved it further


def test_images_of_a_person_have_noise_of_their_own() -> None:
    views = GroupedViews(of_one=NoisyViews(sigma=1.0, views=1))(
        torch.zeros(2, 3, 4), records=torch.tensor([0, 1]), step=0, key=KEY
    )
    assert isinstance(views, Tensor)
    assert len({tuple(row.tolist()) for row in views.flatten(0, 1)}) == 6


def test_moved_views_and_an_empty_sample() -> None:
    views_of = GroupedViews(of_one=NoisyViews(sigma=0.1, views=2, moves=Moves(shift=1, flip=True)))
    x, _ = persons([[0, 1, 2]])
    some = views_of(x, records=torch.tensor([3]), step=0, key=KEY)
    none = views_of(x[:0], records=torch.tensor([], dtype=torch.int64), step=0, key=KEY)
    assert isinstance(some, Tensor)
    assert isinstance(none, Tensor)
    assert some.shape == (1, 6, *SHAPE)
    assert none.shape == (0, 6, *SHAPE)


def test_persons_train_by_the_fast_path(network: nn.Module) -> None:
    x, y = persons([[0, -1, -1], [1, 2, -1], [2, 2, 0], [0, 0, -1]])
    trainer = PrivateTrainer(
        network,
        x,
        y,
        plan=PrivacyPlan(records=4, batch=2, epochs=2, noise_multiplier=1.0, delta=1e-5),
        views=GroupedViews(of_one=NoisyViews(sigma=0.2, views=2)),
        loss=grouped_loss(mean_cross_entropy),
        clipping=0.1,
        optimisation=Optimisation(lr=0.1),
        randomness=SeededRandomness(0),
        path="fast",
    )
    seen = []
    trainer.run(seen.append)
    assert len(seen) == trainer.plan.steps
    assert all(done.private.records <= 4 for done in seen)  # persons, not images
