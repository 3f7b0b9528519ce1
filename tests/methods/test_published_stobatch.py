"""StoBatch as published: the printed noise and objectives, the leak that comes of them, an honest card."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from hauberk.accounting import PrivacyPlan, UnprotectedEvent
from hauberk.attacks import IFGSM, MIM, PGD
from hauberk.certify import Smoothed, clopper_pearson_lower
from hauberk.certify.first_map import find_first_map
from hauberk.certify.gains import gain
from hauberk.certify.published_gains import published_gain
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.gradients import GeneralPathNotice
from hauberk.mechanisms.objectives import output_taylor, reconstruction_taylor
from hauberk.methods.base import Given
from hauberk.methods.columns import SEEDED_NOISE
from hauberk.methods.functional_objectives import (
    AdversarialObjective,
    FunctionalBudgets,
    TwoObjectives,
    first_map_norm,
    label_sensitivity,
    reconstruction_sensitivity,
)
from hauberk.methods.published_stobatch import (
    CLAIM,
    LESS_NOISE,
    ONE_DRAW,
    EquationThirteen,
    PublishedStoBatch,
    SharedDraw,
)
from hauberk.methods.run import AuditSettings
from hauberk.methods.settings import TrainSettings
from hauberk.methods.shared_noise import FromPerturbed, SharedNoise
from hauberk.progress import silent
from hauberk.randomness import SeededRandomness
from hauberk.training import Optimisation, RunFolder
from hauberk.training.distribution import Ranks

ADAM = Optimisation(lr=3e-3, optimizer="adam", averaging=0.0, schedule="constant")
AUDIT = AuditSettings(tested=16, samples=200, attacked=4, attack_steps=3, attack_draws=4)
KEY = (3, 4)
SHAPE = (1, 8, 8)


def images(rows: int = 96) -> Dataset:
    """A bright bar on the left or on the right: two classes that a few steps can tell apart."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, *SHAPE, generator=generator) / 2
    y = torch.arange(rows) % 2
    x[y == 0, :, :, :3] += 0.5
    x[y == 1, :, :, 5:] += 0.5
    return Dataset(name="made up", x=x, y=y, classes=2)


def convolutional() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 3, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(48, 6),
            nn.Tanh(),
            nn.Linear(6, 2),
        )


def dense() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 2))


def with_draws(network: nn.Module, scale: float = 0.3) -> SharedNoise:
    shared, generator = SharedNoise(network, shape=SHAPE), torch.Generator().manual_seed(1)
    shared.put(
        at_input=scale * torch.randn(shared.input_noise.shape, generator=generator),
        after_first=scale * torch.randn(shared.layer_noise.shape, generator=generator),
    )
    return shared


def plan(epochs: float = 1.0) -> PrivacyPlan:
    return PrivacyPlan(records=96, batch=32, epochs=epochs, noise_multiplier=1.0, delta=1e-3)


def stobatch(network: nn.Module | None = None, epsilon: float = 4.0, **settings: object) -> PublishedStoBatch:
    settings = {"plan": plan(), "optimisation": ADAM, "attack_steps": 2, **settings}
    shared = SharedNoise(network or convolutional(), shape=SHAPE)
    return PublishedStoBatch(shared, claimed_epsilon=epsilon, **settings)


def settled(method: PublishedStoBatch, seed: int = 5) -> dict[str, torch.Tensor]:
    return method.settle(
        Given(
            model=copy.deepcopy(method.model),
            private=images(),
            public=None,
            randomness=SeededRandomness(seed),
            ranks=Ranks.alone(),
            progress=silent,
        )
    )


def test_two_perturbed_records_reveal_their_exact_difference() -> None:
    """The leak: at a claimed epsilon of 0.1 the noise is a hundred times the pixels, and cancels."""
    method = stobatch(epsilon=0.1)
    constants = settled(method)
    views = method.record_views(method.model, SHAPE, constants)
    x = images().x[:2].double()
    shared = SharedDraw(input_noise=constants["input_noise"], layer_noise=constants["layer_noise"])
    for step in (0, 7):
        inputs, _ = shared(x, records=torch.arange(2), step=step, key=KEY)
        assert float((inputs[:, 0] - x).abs().mean()) > 100
        assert torch.allclose(inputs[0, 0] - inputs[1, 0], x[0] - x[1], rtol=0, atol=1e-12)
    seen = views(x.float(), records=torch.arange(2), step=3, key=KEY)
    assert torch.equal(seen[:, 0], x.float() + constants["input_noise"])


def test_the_adversarial_copy_is_perturbed_too_and_stays_within_its_size() -> None:
    method = stobatch(attack_size=0.2)
    constants = settled(method)
    method.furnish(method.model, constants)
    views = method.record_views(method.model, SHAPE, constants)
    seen = views(images().x, records=torch.arange(96), step=1, key=KEY)
    moved = (seen[:, 1] - seen[:, 0]).flatten(1).abs().amax(1)
    assert float(moved.max()) <= 0.2 + 1e-5
    assert float(moved.min()) > 0
    assert float(moved.std()) > 0.02  # mu_t is random
    original = seen[:, 1] - constants["input_noise"]
    assert float(original.min()) > -1e-5
    assert float(original.max()) < 1 + 1e-5
    assert [type(each) for each in method.attacks] == [IFGSM, MIM, PGD]
    assert {each.steps for each in method.attacks} == {2}


def test_processes_with_draws_of_their_own_agree_on_the_settings() -> None:
    """They compare how views are written before the leader's draws replace the others'."""
    method = stobatch()
    one, other = (method.record_views(method.model, SHAPE, settled(method, seed=seed)) for seed in (5, 6))
    assert repr(one) == repr(other)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (nn.Conv2d(1, 32, 5, stride=2, padding=2), (1, 28, 28), (14**2 + 2) * 25),
        (nn.Conv2d(3, 128, 4, stride=2, padding=1), (3, 28, 28), 3 * (14**2 + 2) * 16),
        (nn.Linear(64, 5), (64,), 64 * (5 + 2)),
    ],
    ids=["mnist", "cifar", "dense"],
)
def test_the_sensitivities_are_the_papers(layer: nn.Module, shape: tuple[int, ...], expected: int) -> None:
    network = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(2))
    network(torch.zeros(1, *shape))
    assert reconstruction_sensitivity(find_first_map(network, shape)) == expected
    assert label_sensitivity(256) == 512


def test_the_norm_of_a_convolution_is_that_of_one_feature_map() -> None:
    network = convolutional()
    unit = torch.eye(64).view(64, *SHAPE)
    weight = network[0].weight.detach()
    columns = nn.functional.conv2d(unit, weight, stride=2, padding=1).abs().sum((2, 3))
    assert first_map_norm(find_first_map(network, SHAPE)) == pytest.approx(float(columns.max()), rel=1e-6)
    linear = dense()
    largest = float(linear[1].weight.detach().abs().sum(0).max())
    assert first_map_norm(find_first_map(linear, SHAPE)) == pytest.approx(largest, rel=1e-6)


def test_the_budgets_add_up_to_what_is_claimed() -> None:
    """The authors' MNIST run at epsilon 0.2: epsilon2 = 0.1 and epsilon1 = 0.061."""
    budgets = FunctionalBudgets.split(0.2, label_share=0.5, batch=2499, sensitivity=4950.0, norm=0.53)
    assert budgets.labels == pytest.approx(0.1)
    assert budgets.reconstruction == pytest.approx(0.061, abs=5e-4)
    assert budgets.gamma_x == pytest.approx(4950 / 2499)
    assert budgets.gamma == pytest.approx(2 * 4950 / (2499 * 0.53))
    assert budgets.claimed == pytest.approx(0.2)
    with pytest.raises(RequestError, match="share"):
        FunctionalBudgets.split(0.2, label_share=1.0, batch=2499, sensitivity=4950.0, norm=0.53)


def test_the_draws_have_the_printed_scales() -> None:
    method = stobatch(epsilon=2.0)
    constants, budgets = settled(method), method.budgets(SHAPE)
    assert budgets.claimed == pytest.approx(2.0)
    at_input = (16 + 2) * 9 / (budgets.reconstruction * 32)
    assert constants["scales"].tolist() == pytest.approx([at_input, 2 * at_input])
    assert constants["label_noise"].shape == (2, 6)
    drawn = torch.cat(
        [
            constants["input_noise"].flatten() / at_input,
            constants["layer_noise"].flatten() / (2 * at_input),
            constants["label_noise"].flatten() / (12 / budgets.labels),
        ]
    )
    assert len(drawn) == 64 + 48 + 12
    assert kstest(drawn.numpy(), "laplace").pvalue > 1e-3
    assert not torch.equal(settled(method, seed=6)["input_noise"], constants["input_noise"])


@pytest.mark.parametrize("network", [convolutional(), dense()], ids=["convolution", "dense"])
def test_the_deployed_network_adds_both_draws(network: nn.Sequential) -> None:
    shared, x = with_draws(network), images().x[:5]
    place = 0 if isinstance(network[0], nn.Conv2d) else 1
    expected = network[place + 1 :](network[: place + 1](x + shared.input_noise) + shared.layer_noise)
    assert torch.allclose(shared(x), expected, atol=1e-5)
    assert not torch.allclose(shared(x), network(x), atol=1e-2)
    perturbed = FromPerturbed(shared)(x + shared.input_noise, shared.layer_noise)
    assert torch.allclose(perturbed, expected, atol=1e-5)
    assert not any(each._forward_hooks for each in shared.modules())


def test_the_deployed_network_still_has_a_first_map_that_noise_may_follow() -> None:
    shared, method = with_draws(convolutional()), stobatch()
    classifier = Smoothed(shared, noise=method.noise_layers(settled(method)), classes=2)
    found = classifier.certify(images().x[:3], samples=20, norm="l1", certificate="laplace")
    assert len(found.radii) == 3
    assert find_first_map(shared, SHAPE).layer is shared.first


def test_the_network_that_was_passed_in_is_copied() -> None:
    network = convolutional()
    shared = SharedNoise(network, shape=SHAPE)
    assert all(each.requires_grad for each in network.parameters())
    frozen = [name for name, each in shared.named_parameters() if not each.requires_grad]
    assert frozen == ["network.0.bias"]
    assert shared.first is not network[0]


@pytest.mark.parametrize("network", [convolutional(), dense()], ids=["convolution", "dense"])
def test_the_reconstruction_is_the_taylor_polynomial_of_a_tied_auto_encoder(network: nn.Sequential) -> None:
    shared = with_draws(network)
    x = images().x[:4] + shared.input_noise
    rows = TwoObjectives(shared)(x)
    weight = shared.first.weight
    flat = x.flatten(1)
    if isinstance(shared.first, nn.Conv2d):
        hidden = shared.first(x).clamp(-1, 1) + shared.layer_noise
        decoded = nn.functional.conv_transpose2d(hidden, weight, stride=2, padding=1, output_padding=1)
        decoded = decoded.flatten(1)
    else:
        decoded = (shared.first(flat).clamp(-1, 1) + shared.layer_noise) @ weight
    expected = reconstruction_taylor(flat, decoded) - 64 * math.log(2)
    assert torch.allclose(rows[:, -1], expected, rtol=1e-4, atol=1e-4)
    assert torch.allclose(rows[:, :-1], FromPerturbed(shared)(x, shared.layer_noise), atol=1e-6)


def test_the_first_layer_descends_the_reconstruction_alone_and_by_equation_19() -> None:
    shared = with_draws(dense())
    x = images().x[:4] + shared.input_noise
    rows, first = TwoObjectives(shared)(x), shared.first
    hidden = first(x.flatten(1)).clamp(-1, 1) + shared.layer_noise
    (gradient,) = torch.autograd.grad(rows[:, -1].sum(), first.weight, retain_graph=True)
    assert torch.allclose(gradient, hidden.T @ (0.5 - x.flatten(1)), rtol=1e-4, atol=1e-4)
    weights = [first.weight, shared.output.weight]
    of_first, of_last = torch.autograd.grad(rows[:, :-1].sum(), weights, retain_graph=True)
    assert not of_first.any()
    assert float(of_last.abs().max()) > 0
    (of_last,) = torch.autograd.grad(rows[:, -1].sum(), weights[1:])
    assert not of_last.any()


def test_benign_and_adversarial_losses_are_weighed_by_xi() -> None:
    rows = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 3, 1])
    own = nn.functional.one_hot(labels, 4).float()
    found = AdversarialObjective(adversarial_weight=1.5)(rows, labels)
    benign, adversarial = (output_taylor(rows[:, view, :4], own) for view in (0, 1))
    expected = (benign + 1.5 * adversarial) / 2.5 + (rows[:, 0, 4] + rows[:, 1, 4]) / 2
    assert torch.allclose(found, expected)


def test_a_step_descends_both_objectives_with_noisy_labels() -> None:
    """The trainer's gradient is autograd's of (sum of objectives - chi_3 W) / m."""
    method = stobatch(path="fast")
    constants = settled(method)
    model = copy.deepcopy(method.model)
    trainer = method.trainer(images(), model=model, randomness=SeededRandomness(5), constants=constants)
    clipped = trainer._clipped_sum()
    _, views, labels = trainer.sampled()
    assert clipped.records > 5
    rows = trainer.model(views.flatten(0, 1)).unflatten(0, (-1, 2))
    objective = AdversarialObjective(adversarial_weight=1.0)(rows, labels).sum()
    objective = (objective - (constants["label_noise"] * model.output.weight).sum()) / 32
    trained = {name: each for name, each in trainer.model.named_parameters() if each.requires_grad}
    released = trainer._released(clipped)
    assert set(released) == set(trained)
    for name, one in zip(trained, torch.autograd.grad(objective, list(trained.values())), strict=True):
        size = float(one.abs().max())
        assert torch.allclose(released[name] / 32, one, rtol=1e-3, atol=1e-5 * size), name
    assert trainer.noise.deviation(1.0) == pytest.approx(
        float(constants["label_noise"].square().mean().sqrt())
    )


def test_a_card_claims_epsilon_proves_nothing_and_says_why() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralPathNotice)
        run = stobatch().fit(images())
    assert run.ledger.events == (UnprotectedEvent(count=run.plan.steps),)
    card = run.audit(images(), settings=AUDIT)
    assert (card.method, card.variant) == ("stobatch", "paper")
    assert card.privacy.claimed is not None
    assert (card.privacy.claimed.epsilon, card.privacy.claimed.source) == (4.0, CLAIM)
    assert card.privacy.proven is None
    assert card.privacy.reason == ONE_DRAW
    assert card.robustness.norm == "l1"
    assert card.robustness.proven is not None
    assert card.robustness.proven.certificate == "laplace"
    assert card.robustness.observed is not None
    assert "l1 PGD" in card.robustness.observed.attack
    assert card.robustness.reason == LESS_NOISE


def test_the_claimed_radius_is_equation_13_and_the_proven_one_that_of_the_noise_that_is_drawn() -> None:
    method = stobatch(epsilon=1e4, plan=plan(epochs=8.0), noise_seed=1, test_divisor=10.0)
    run = method.fit(images())
    assert run.audit(images(), settings=AUDIT).utility.accuracy > 0.9  # it learns where the noise is small
    noise = run.noise
    at_input = 18 * 9 / (method.budgets(SHAPE).reconstruction * 32)
    assert (noise.kind, noise.at_input, noise.after_first_map) == pytest.approx(
        ("laplace", at_input / 10, 2 * at_input / 10)
    )
    certificates = run.classifier.certify(images().x[:20], samples=200, norm="l1", certificate="laplace")
    first_map = find_first_map(run.model, SHAPE)
    lower = clopper_pearson_lower(certificates.votes, 200, certificates.alpha)
    proven = -np.log(2 * (1 - lower)) / gain(noise, "l1", shape=SHAPE, first_map=first_map).value
    assert (certificates.radii > 0).sum() > 10
    assert certificates.radii == pytest.approx(np.where(lower > 0.5, proven, 0.0))
    full = published_gain(noise, "l1", shape=SHAPE, first_map=first_map).value / 10
    column = first_map_norm(first_map)
    assert full == pytest.approx(1 / at_input + column / (2 * at_input), rel=1e-6)
    claimed = run.published_radius.radii(certificates, run.classifier, SHAPE)
    assert claimed == pytest.approx(np.where(lower > 0.5, np.log(lower / (1 - lower)) / 2 / full, 0.0))
    certified = certificates.radii > 0
    assert (claimed[certified] > 2 * certificates.radii[certified]).all()


def test_the_claim_grows_with_the_divisor_although_nothing_else_changes() -> None:
    run = stobatch(noise_seed=1).fit(images())
    gains = [EquationThirteen(divisor=each).gain(run.classifier, "l1", SHAPE) for each in (1.0, 4.0)]
    assert gains[0] == pytest.approx(4 * gains[1])


def test_a_noise_seed_repeats_the_weights() -> None:
    first, second, other = (stobatch(noise_seed=seed).fit(images()).model for seed in (3, 3, 4))
    for name, one in first.state_dict().items():
        assert torch.equal(one, second.state_dict()[name])
        assert torch.equal(one, other.state_dict()[name]) == (name == "network.0.bias"), name
    assert stobatch(noise_seed=3).fit(images()).audit(images(), settings=AUDIT).privacy.reason == SEEDED_NOISE


def test_an_interrupted_run_goes_on_with_the_draws_that_it_had(tmp_path) -> None:
    method = stobatch(noise_seed=3, plan=plan(epochs=2.0))
    whole = method.fit(images()).model
    folder = RunFolder(tmp_path / "run")
    folder.create()

    def stop(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("training", 5):  # after the checkpoint of the first epoch, which has 3 steps
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method.fit(images(), folder=folder, progress=stop)
    resumed = method.fit(images(), folder=folder, resume=True)
    for name, one in whole.state_dict().items():
        assert torch.equal(one, resumed.model.state_dict()[name])
    again = SharedNoise(convolutional(), shape=SHAPE)
    again.load_state_dict(folder.read_model())
    assert torch.equal(again(images().x), resumed.model(images().x))
    assert method.noise_layers(folder.read_constants(("scales",))).words == resumed.noise.words


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), "more layers than one"),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Linear(3, 2), nn.Tanh()), "ends in one"),
        (nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(64, 3), nn.Linear(3, 2)), "more than reshape"),
    ],
    ids=["one layer", "activation at the end", "activation at the start"],
)
def test_a_network_without_first_and_last_layer_is_refused(network: nn.Module, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        SharedNoise(network, shape=SHAPE)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"claimed_epsilon": None}, "epsilon that it claims"),
        ({"model": dense()}, "SharedNoise"),
        ({"attack_size": 0.0}, "attack_size"),
        ({"adversarial_weight": -1.0}, "adversarial_weight"),
        ({"test_divisor": 0.5}, "test_divisor"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], sentence: str) -> None:
    usual = {"model": SharedNoise(dense(), shape=SHAPE), "plan": plan(), "claimed_epsilon": 1.0}
    with pytest.raises(RequestError, match=sentence):
        PublishedStoBatch(**{**usual, **settings})


def test_the_settings_of_a_run_reach_the_method() -> None:
    chosen = TrainSettings(
        method="stobatch",
        variant="paper",
        epsilon=2.0,
        batch=32,
        training_attack_steps=3,
        training_attack_size=0.25,
    )
    method = PublishedStoBatch.from_settings(SharedNoise(dense(), shape=SHAPE), chosen, plan())
    assert (method.epsilon, method.attack_size, method.attacks[0].steps) == (2.0, 0.25, 3)
    assert math.isclose(method.clipping.sensitivity, 1e30)
