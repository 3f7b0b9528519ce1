"""The private loop: what it releases is the noisy clipped sum, and its ledger counts every step."""

import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import GaussianRelease, PrivacyPlan, joint_event
from hauberk.errors import RequestError
from hauberk.gradients import AdaptiveClip, ClippedGradients, FlatClip, Geometry, trainable
from hauberk.randomness import SeededRandomness, SystemRandomness
from hauberk.training import NoisyViews, Optimisation, PrivateTrainer
from hauberk.training.sampling import PoissonSampler


def plan(**changes: float) -> PrivacyPlan:
    constants = {"records": 64, "batch": 16, "epochs": 2, "noise_multiplier": 1.0, "delta": 1e-3}
    return PrivacyPlan(**{**constants, **changes})


def trainer(seed: int = 0, *, rows: int = 64, **changes: object) -> PrivateTrainer:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 3))
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand(rows, 1, 3, 3, generator=generator), torch.randint(0, 3, (rows,), generator=generator)
    settings = {
        "plan": plan(),
        "views": NoisyViews(sigma=0.25, views=2),
        "clipping": 0.5,
        "optimisation": Optimisation(lr=0.5),
        "randomness": SeededRandomness(7),
    }
    return PrivateTrainer(model, x, y, **{**settings, **changes})


def weights(trained: PrivateTrainer) -> Tensor:
    return torch.cat([weight.flatten() for weight in trainable(trained.model).values()])


def test_every_step_is_in_the_ledger() -> None:
    each = trainer()
    for done in range(each.plan.steps):
        assert sum(event.count for event in each.ledger.events) == done
        each.advance()
    assert each.ledger.events == (each.plan.event(),)


def test_the_event_is_recorded_before_the_noise_is_drawn() -> None:
    class Watching(SeededRandomness):
        def normals(self, **arguments: object) -> Tensor:
            assert sum(event.count for event in each.ledger.events) == each.step + 1
            return super().normals(**arguments)

    each = trainer(randomness=Watching(1))
    each.run(lambda done: None)
    assert each.step == each.plan.steps


def test_a_step_is_the_clipped_sum_plus_noise_over_the_constant_batch() -> None:
    """Plain SGD, one step, rebuilt by hand from the same coins, views and noise."""
    randomness = SeededRandomness(3)
    plain = Optimisation(lr=1.0, momentum=0.0, schedule="constant", averaging=0.0)
    each = trainer(optimisation=plain, randomness=randomness)
    before = weights(each).clone()
    chosen = PoissonSampler(each.plan, held=64, randomness=randomness).sample(0)
    views = NoisyViews(sigma=0.25, views=2)(
        each._x[chosen], records=chosen, step=0, key=randomness.view_key()
    )
    total = ClippedGradients(each.model, clipping=FlatClip(0.5)).clipped_sum(views, each._y[chosen])
    clipped = torch.cat([gradient.flatten() for gradient in total.gradients.values()])
    noise = randomness.normals(step=0, count=len(clipped), device=torch.device("cpu"))
    each.advance()
    expected = before - (clipped + each.plan.noise_multiplier * 0.5 * noise) / each.plan.batch
    torch.testing.assert_close(weights(each), expected.to(torch.float32), rtol=1e-5, atol=1e-7)


def test_the_noise_has_the_planned_deviation() -> None:
    """With an empty data set nothing but noise is left; its variance is (z C / batch)^2 over many steps."""
    plain = Optimisation(lr=1.0, momentum=0.0, schedule="constant", averaging=0.0)
    each = trainer(
        rows=0, plan=plan(epochs=100, noise_multiplier=2.0), optimisation=plain, randomness=SystemRandomness()
    )
    steps, last = [], weights(each).clone()
    for _ in range(400):
        each.advance()
        now = weights(each).clone()
        steps.append(now - last)
        last = now
    drawn = torch.stack(steps).double() * each.plan.batch / (2.0 * 0.5)
    count = drawn.numel()
    assert abs(float(drawn.mean())) < 6 / count**0.5
    assert abs(float(drawn.var()) - 1) < 6 * (2 / count) ** 0.5


def test_the_divisor_and_the_rate_do_not_depend_on_the_realised_data() -> None:
    few, many = trainer(rows=3), trainer(rows=200)
    assert few.plan.event() == many.plan.event()
    few.run(lambda done: None)
    many.run(lambda done: None)
    assert few.ledger.events == many.ledger.events


def test_most_steps_may_be_empty() -> None:
    each = trainer(rows=2, plan=plan(records=1000, batch=1, epochs=0.05))
    sizes = []
    each.run(lambda done: sizes.append(done.private.records))
    assert sizes.count(0) > len(sizes) / 2
    assert torch.isfinite(weights(each)).all()


def test_poisson_sampling_draws_each_record_at_the_planned_rate() -> None:
    sampler = PoissonSampler(plan(), held=2000, randomness=SystemRandomness())
    counts = torch.zeros(2000)
    for step in range(200):
        counts[sampler.sample(step)] += 1
    rate, total = 0.25, 2000 * 200
    assert abs(float(counts.sum()) / total - rate) < 6 * (rate * (1 - rate) / total) ** 0.5
    # independent coins: the number of times a record is drawn has binomial variance
    assert abs(float(counts.var()) / (200 * rate * (1 - rate)) - 1) < 0.25


def test_the_same_noise_seed_gives_the_same_weights_and_another_does_not() -> None:
    first, second, other = trainer(), trainer(), trainer(randomness=SeededRandomness(8))
    for each in (first, second, other):
        each.run(lambda done: None)
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(other))


def test_without_a_noise_seed_no_two_runs_are_alike() -> None:
    first, second = trainer(randomness=SystemRandomness()), trainer(randomness=SystemRandomness())
    first.run(lambda done: None)
    second.run(lambda done: None)
    assert not torch.equal(weights(first), weights(second))


def test_frozen_parameters_stay_as_they_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 3))
    model[1].requires_grad_(False)
    before = model[1].weight.clone()
    each = PrivateTrainer(
        model,
        torch.rand(64, 1, 3, 3),
        torch.randint(0, 3, (64,)),
        plan=plan(),
        views=NoisyViews(sigma=0.1, views=1),
        clipping=1.0,
        optimisation=Optimisation(lr=1.0),
        randomness=SystemRandomness(),
    )
    each.run(lambda done: None)
    assert torch.equal(model[1].weight, before)
    assert model[1].weight.grad is None


def test_dropout_draws_anew_and_repeats_with_the_seed() -> None:
    def with_dropout(noise_seed: int) -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        each = PrivateTrainer(
            model,
            torch.ones(32, 1, 3, 3),
            torch.zeros(32, dtype=torch.int64),
            plan=plan(records=32),
            views=NoisyViews(sigma=0.1, views=1),
            clipping=1.0,
            optimisation=Optimisation(lr=1.0),
            randomness=SeededRandomness(noise_seed),
        )
        each.run(lambda done: None)
        return weights(each)

    assert torch.equal(with_dropout(5), with_dropout(5))


def test_both_gradient_paths_train_the_same_weights() -> None:
    fast, general = trainer(path="fast"), trainer(path="general")
    for each in (fast, general):
        each.run(lambda done: None)
    torch.testing.assert_close(weights(fast), weights(general), rtol=1e-4, atol=1e-6)


def test_a_memory_limit_changes_the_parts_and_not_the_result() -> None:
    whole, parts = trainer(), trainer(memory=4_000)
    assert parts._gradients.records_at_a_time() < 10 < whole._gradients.records_at_a_time()
    for each in (whole, parts):
        each.run(lambda done: None)
    torch.testing.assert_close(weights(whole), weights(parts), rtol=1e-4, atol=1e-6)


def test_a_geometry_shapes_the_noise_of_every_coordinate() -> None:
    """An empty data set leaves only noise; coordinate j has deviation s_j z C / batch."""
    scale = torch.logspace(-2, 2, 36).view(4, 9)
    plain = Optimisation(lr=1.0, momentum=0.0, schedule="constant", averaging=0.0)
    each = trainer(rows=0, plan=plan(epochs=100), optimisation=plain, geometry=Geometry({"1.weight": scale}))
    drawn = []
    for _ in range(400):
        before = each.model[1].weight.detach().clone()
        each.advance()
        drawn.append((each.model[1].weight.detach() - before).double() * each.plan.batch / (0.5 * scale))
    normals = torch.stack(drawn)
    assert float((normals.var(0) - 1).abs().max()) < 6 * (2 / 400) ** 0.5


def test_an_adaptive_clip_follows_the_norms_and_is_paid_by_the_plan() -> None:
    adaptive = AdaptiveClip(bound=20.0, count_deviation=2.0)
    each = trainer(clipping=adaptive, plan=plan(epochs=10), optimisation=Optimisation(lr=1e-6))
    each.run(lambda done: None)
    assert adaptive.bound < 10.0  # every norm is far below the start
    assert each.ledger.events == (each.plan.event(),)
    joint = joint_event(
        [
            GaussianRelease(sensitivity=1.0, deviation=each.noise.noise_multiplier),
            GaussianRelease(sensitivity=0.5, deviation=adaptive.count_deviation),
        ]
    )
    assert joint.noise_multiplier == pytest.approx(each.plan.noise_multiplier, rel=1e-9)


OPTIMIZERS = {
    "sgd": "sgd",
    "adam": "adam",
    "own": lambda weights: torch.optim.RMSprop(weights, lr=0.01, momentum=0.5),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("schedule", ["tail", "constant", "cosine", lambda step, steps: 0.5])
def test_any_optimizer_receives_the_private_gradient(optimizer: object, schedule: object) -> None:
    """The same noisy gradients, applied by torch's own loop, lead to the same weights."""
    each = trainer(optimisation=Optimisation(lr=0.05, optimizer=optimizer, schedule=schedule))
    reference = trainer(optimisation=Optimisation(lr=0.05, optimizer=optimizer, schedule=schedule))
    by_hand = reference.optimizer.optimizer
    full = by_hand.param_groups[0]["lr"]
    for step in range(each.plan.steps):
        each.advance()
        clipped = reference._clipped_sum()
        noisy = reference.noise.release(clipped, step).gradients
        for name, weight in reference.model.named_parameters():
            weight.grad = noisy[name] / reference.plan.batch
        by_hand.param_groups[0]["lr"] = full * Optimisation(lr=1, schedule=schedule).lr_factor(
            step, each.plan.steps
        )
        by_hand.step()
        reference.step += 1
    assert torch.equal(weights(each), weights(reference))


def test_an_optimizer_that_asks_for_the_loss_again_is_refused() -> None:
    with pytest.raises(RequestError, match="LBFGS"):
        trainer(optimisation=Optimisation(lr=1, optimizer=lambda weights: torch.optim.LBFGS(weights)))


def test_the_learning_rate_falls_over_the_last_part() -> None:
    schedule = Optimisation(lr=2.0)
    factors = [schedule.lr_factor(step, 100) for step in range(100)]
    assert factors[:70] == [1.0] * 70
    assert factors[70:] == sorted(factors[70:], reverse=True)
    assert 0 < factors[-1] < 0.05


WRONG = [
    ("clip", {"clipping": 0.0}, "clip must be positive"),
    ("infinite clip", {"clipping": float("inf")}, "clip must be positive"),
]


@pytest.mark.parametrize(("name", "changes", "sentence"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_settings_cost_one_sentence(name: str, changes: dict[str, float], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        trainer(**changes)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: NoisyViews(sigma=-1, views=1), "sigma"),
        (lambda: NoisyViews(sigma=float("nan"), views=1), "sigma"),
        (lambda: NoisyViews(sigma=1, views=0), "views"),
        (lambda: Optimisation(lr=0), "lr"),
        (lambda: Optimisation(lr=1, momentum=1.0), "momentum"),
        (lambda: Optimisation(lr=1, averaging=-0.1), "averaging"),
        (lambda: Optimisation(lr=1, optimizer="magic"), "optimizer must be one of"),
        (lambda: Optimisation(lr=1, schedule="magic"), "schedule must be one of"),
    ],
)
def test_wrong_parts_cost_one_sentence(build, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        build()
