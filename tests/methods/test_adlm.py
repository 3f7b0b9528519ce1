"""AdLM as published: its noise has the published size, its leak is there, and its card says so."""

import math
import warnings

import pytest
import torch
from scipy.stats import kstest
from torch import nn

from hauberk.accounting import PrivacyPlan, UnprotectedEvent
from hauberk.certify.first_map import find_first_map
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import GeneralPathNotice
from hauberk.mechanisms.objectives import QuadraticObjective, output_taylor
from hauberk.methods import adaptive_laplace
from hauberk.methods.adaptive_laplace import Budgets, LossNoise, laplace_variables
from hauberk.methods.adlm import (
    CLAIM,
    LARGEST_INPUT,
    SHARED_NOISE,
    AdLM,
    SharedLaplaceViews,
    find_output_layer,
    published_plan,
)
from hauberk.methods.base import Given
from hauberk.methods.columns import SEEDED_NOISE
from hauberk.methods.settings import TrainSettings
from hauberk.models import build
from hauberk.progress import silent
from hauberk.randomness import SeededRandomness
from hauberk.training import Optimisation, RunFolder
from hauberk.training.distribution import Ranks

ADAM = Optimisation(lr=1e-3, optimizer="adam", averaging=0.0, schedule="constant")
KEY = (3, 4)


def images(rows: int = 96) -> Dataset:
    """A bright bar on the left or on the right: two classes that a few steps can tell apart."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, 1, 8, 8, generator=generator) / 2
    y = torch.arange(rows) % 2
    x[y == 0, :, :, :3] += 0.5
    x[y == 1, :, :, 5:] += 0.5
    return Dataset(name="made up", x=x, y=y, classes=2)


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 6),
            nn.Tanh(),
            nn.Linear(6, 2),
        )


def plan(epochs: float = 1.0) -> PrivacyPlan:
    return PrivacyPlan(records=96, batch=32, epochs=epochs, noise_multiplier=1.0, delta=1e-3)


def adlm(model: nn.Module | None = None, epsilon: float = 4.0, **settings: object) -> AdLM:
    settings = {"plan": plan(), "optimisation": ADAM, **settings}
    return AdLM(model or network(), claimed_epsilon=epsilon, **settings)


def given(model: nn.Module) -> Given:
    return Given(
        model=model,
        private=images(),
        public=None,
        randomness=SeededRandomness(5),
        ranks=Ranks.alone(),
        progress=silent,
    )


def test_laplace_variables_have_the_laplace_distribution() -> None:
    normals = torch.randn(4, 40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = laplace_variables(normals)
    assert kstest(found.numpy(), "laplace").pvalue > 1e-3
    assert float(found.abs().mean()) == pytest.approx(1.0, abs=0.02)
    assert float(found.var()) == pytest.approx(2.0, rel=0.05)


def test_the_views_of_a_step_carry_laplace_noise_of_the_given_scales() -> None:
    scales = torch.tensor([0.01, 0.1]).view(2, 1, 1).expand(2, 100, 100)
    views = SharedLaplaceViews(scales=scales)
    zero = torch.zeros(1, 2, 100, 100)
    noise = views(zero, records=torch.tensor([7]), step=3, key=KEY)[0, 0]
    for part, scale in ((noise[0], 0.01), (noise[1], 0.1)):
        assert kstest(part.flatten().numpy() / scale, "laplace").pvalue > 1e-3
    later = views(zero, records=torch.tensor([7]), step=4, key=KEY)[0, 0]
    assert abs(float(torch.corrcoef(torch.stack([noise[1].flatten(), later[1].flatten()]))[0, 1])) < 0.05


def test_the_noise_cancels_in_the_difference_of_two_records() -> None:
    """The leak: whatever the scale, two perturbed records differ by exactly what the records differ by."""
    x = images().x[:2].double()
    views = SharedLaplaceViews(scales=torch.full((1, 8, 8), 5.0))
    seen = views(x, records=torch.tensor([0, 1]), step=0, key=KEY).squeeze(1)
    inside = (seen.abs() < LARGEST_INPUT).all(0)
    assert inside.double().mean() > 0.5
    assert float((seen - x).abs().mean()) > 1.0  # there is noise, and plenty
    difference = x[0] - x[1]
    assert torch.allclose((seen[0] - seen[1])[inside], difference[inside], rtol=0, atol=1e-12)
    assert float(seen.abs().max()) <= LARGEST_INPUT


def test_a_record_gets_the_same_noise_whoever_is_in_the_batch() -> None:
    x, views = images().x, SharedLaplaceViews(scales=torch.full((1, 8, 8), 0.1))
    together = views(x[:5], records=torch.arange(5), step=2, key=KEY)
    alone = views(x[3:4], records=torch.tensor([3]), step=2, key=KEY)
    assert torch.equal(together[3:4], alone)


def test_epsilon_is_split_one_to_one_to_two() -> None:
    budgets = Budgets.split(0.3)
    assert (budgets.relevance, budgets.inputs, budgets.loss) == pytest.approx((0.075, 0.075, 0.15))


def test_the_sensitivities_are_the_authors() -> None:
    mnist = build("paper-mnist-cnn", shape=(1, 28, 28), classes=10)
    first_map = find_first_map(mnist, (1, 28, 28))
    assert adaptive_laplace.first_map_sensitivity(first_map) == 2 * 14**2 * 25
    dense = nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 2))
    assert adaptive_laplace.first_map_sensitivity(find_first_map(dense, (1, 3, 3))) == 2 * 5 * 9
    assert adaptive_laplace.loss_sensitivity(hidden=25, classes=10) == 10 * (25 + 25**2 / 4)


def test_relevance_is_gradient_times_input() -> None:
    """Of a linear network with weights w it is the mean of |w_j x_j| for the record's class."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    data = images()
    weights = model[1].weight.detach()[data.y].view(-1, 1, 8, 8)
    expected = (weights * data.x).abs().mean(0)
    assert torch.allclose(adaptive_laplace.mean_relevance(model, data).float(), expected, atol=1e-6)


def test_relevance_is_brought_to_one_and_gets_the_published_noise() -> None:
    relevance, noise = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0.0, 1.0, -1.0])
    found = adaptive_laplace.noisy_relevance(relevance, noise, epsilon=0.5, records=60)
    scale = 2 * 3 / (0.5 * 60)
    assert found.tolist() == pytest.approx([0.0, 0.25 + scale, 1.0 - scale])


def test_relevant_inputs_get_more_of_the_budget_and_none_gets_nothing() -> None:
    shares = adaptive_laplace.input_shares(torch.tensor([-3.0, 1.0, 0.0, 4.0]))
    assert shares.tolist() == pytest.approx([1.5, 0.5, adaptive_laplace.LEAST_SHARE, 2.0])


def test_every_monomial_of_every_class_has_one_noise_of_the_given_scale() -> None:
    hidden, classes = 60, 4
    count = LossNoise.coefficients(hidden=hidden, classes=classes)
    normals = torch.randn(4, count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    noise = LossNoise.draw(normals, hidden=hidden, classes=classes, scale=7.0)
    assert torch.equal(noise.quadratic, noise.quadratic.mT)
    drawn = torch.cat(
        [
            QuadraticObjective(linear=linear, quadratic=quadratic).coefficients()
            for linear, quadratic in zip(noise.linear, noise.quadratic, strict=True)
        ]
    )
    assert len(drawn) == len(drawn.unique()) == count
    assert kstest(drawn.numpy() / 7.0, "laplace").pvalue > 1e-3


def test_settled_scales_follow_from_relevance_budget_and_batch() -> None:
    method = adlm(epsilon=4.0)
    constants = method.settle(given(network()))
    shares = (2 * 16 * 9) / (constants["input_scales"].double() * 1.0 * 32)  # Delta2 / (scale epsilon2 L)
    assert float(shares.mean()) == pytest.approx(1.0, abs=1e-4)
    count = LossNoise.coefficients(hidden=6, classes=2)
    normals = SeededRandomness(5).normals(step=(1 << 50) + 9, count=4 * count, device=torch.device("cpu"))
    delta3, epsilon3 = 2 * (6 + 36 / 4), 2.0
    expected = LossNoise.draw(normals, hidden=6, classes=2, scale=delta3 / epsilon3)
    assert torch.equal(constants["linear_noise"], expected.linear)
    assert torch.equal(constants["quadratic_noise"], expected.quadratic)


def test_a_step_descends_the_noisy_objective() -> None:
    """The trainer's gradient is autograd's of (sum of Taylor losses + noise term) / L."""
    model, method = network(), adlm(path="fast")
    constants = method.settle(given(network()))
    trainer = method.trainer(images(), model=model, randomness=SeededRandomness(5), constants=constants)
    clipped = trainer._clipped_sum()
    _, views, labels = trainer.sampled()
    assert clipped.records > 5
    losses = output_taylor(model(views.squeeze(1)), nn.functional.one_hot(labels, 2).float())
    weight = model[-1].weight
    term = sum(
        QuadraticObjective(linear=linear, quadratic=quadratic).value(row)
        for linear, quadratic, row in zip(
            constants["linear_noise"], constants["quadratic_noise"], weight, strict=True
        )
    )
    expected = torch.autograd.grad((losses.sum() + term) / 32, list(model.parameters()))
    released = trainer._released(clipped)
    for (name, _), one in zip(model.named_parameters(), expected, strict=True):
        assert torch.allclose(released[name] / 32, one, rtol=1e-4, atol=1e-6), name
    assert not torch.allclose(released["6.weight"], clipped.gradients["6.weight"])


def test_a_card_claims_epsilon_proves_nothing_and_says_why() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralPathNotice)
        run = adlm().fit(images())
    assert run.ledger.events == (UnprotectedEvent(count=run.plan.steps + 1),)
    card = run.audit(images())
    assert (card.method, card.variant) == ("adlm", "paper")
    assert card.privacy.claimed is not None
    assert (card.privacy.claimed.epsilon, card.privacy.claimed.source) == (4.0, CLAIM)
    assert card.privacy.proven is None
    assert card.privacy.reason == SHARED_NOISE
    assert card.robustness.proven is None


def test_it_learns_where_the_noise_is_small() -> None:
    run = adlm(epsilon=1e4, plan=plan(epochs=20.0), noise_seed=1).fit(images())
    assert run.audit(images()).utility.accuracy > 0.9


def test_a_noise_seed_repeats_the_weights() -> None:
    first, second, other = (adlm(noise_seed=seed).fit(images()).model for seed in (3, 3, 4))
    for one, two, three in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert not torch.equal(one, three)
    assert adlm(noise_seed=3).fit(images()).audit(images()).privacy.reason == SEEDED_NOISE


def test_an_interrupted_run_goes_on_with_the_noise_that_it_had(tmp_path) -> None:
    method = adlm(noise_seed=3, plan=plan(epochs=2.0))
    whole = method.fit(images()).model
    folder = RunFolder(tmp_path / "run")
    folder.create()

    def stop(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("training", 5):  # after the checkpoint of the first epoch, which has 3 steps
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method.fit(images(), folder=folder, progress=stop)
    resumed = method.fit(images(), folder=folder, resume=True).model
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "end",
    [
        nn.Sequential(nn.Linear(64, 2), nn.Tanh()),
        nn.Sequential(nn.Unflatten(1, (64, 1, 1)), nn.Conv2d(64, 2, 1), nn.Flatten()),
        nn.Linear(64, 2).requires_grad_(False),
    ],
    ids=["activation", "convolution", "frozen"],
)
def test_a_network_that_does_not_end_in_a_trained_linear_layer_is_refused(end: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), end)
    with pytest.raises(RequestError, match="ends in one"):
        adlm(model).fit(images())


def test_the_output_layer_is_found_and_left_without_hooks() -> None:
    model = network()
    assert find_output_layer(model, (1, 8, 8)) is model[-1]
    assert not any(each._forward_hooks for each in model.modules())


def test_the_settings_need_an_epsilon_to_claim() -> None:
    chosen = TrainSettings(method="adlm", variant="paper", noise_multiplier=1.0, batch=16)
    with pytest.raises(RequestError, match="needs --epsilon"):
        published_plan(chosen, records=64)
    with pytest.raises(RequestError, match="epsilon that it claims"):
        AdLM.from_settings(network(), chosen, plan())


def test_the_plan_is_that_of_dp_sgd_for_the_claimed_epsilon() -> None:
    chosen = TrainSettings(method="adlm", variant="paper", epsilon=2.0, delta=1e-3, batch=32, epochs=1.0)
    made = published_plan(chosen, records=96)
    assert made.private
    assert made.epsilon() == pytest.approx(2.0, rel=0.01)
    method = AdLM.from_settings(network(), chosen, made)
    assert method.budgets == Budgets.split(2.0)
    assert math.isclose(method.clipping.sensitivity, 1e30)
