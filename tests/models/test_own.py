"""Networks of the user's own: how they are made, what is frozen of them, and that frozen means frozen."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import hauberk as hb
from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, FlatClip, PerLayerClip, ScoreLoss, mean_cross_entropy
from hauberk.gradients.choice import disagreement
from hauberk.gradients.fast import FastPath
from hauberk.gradients.general import GeneralPath
from hauberk.models.own import fingerprint, own_network, same_fingerprint
from hauberk.models.weights import frozen_sha256

SHAPE, CLASSES = (1, 8, 8), 3


class Net(nn.Module):
    """A backbone with BatchNorm and a head."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten()
        )
        self.middle = nn.Sequential(nn.Linear(64, 6), nn.BatchNorm1d(6, affine=False), nn.Tanh())
        self.head = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.middle(self.body(x)))
        return answer


@pytest.fixture
def net() -> Net:
    """With statistics as training leaves them."""
    torch.manual_seed(0)
    made = Net()
    for _ in range(3):
        made(torch.rand(16, *SHAPE) * 2)
    return made


# ----------------------------------------------------------------------------------------- factories

MODULE = """
import torch
from torch import nn
seen = []
def plain(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
def fitted(shape, classes=7, width=2):
    seen.append((shape, classes, width))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
def kept(**options): seen.append(options); return plain()
class Own(nn.Sequential):
    def __init__(self, *, classes): super().__init__(nn.Flatten(), nn.Linear(64, classes))
    @classmethod
    def make(cls): return cls(classes=3)
network = plain()
def fails(): raise ValueError("no\\nsuch file")
def leaves(): raise SystemExit(3)
def number(): return 5
def needs(width): return plain()
def wide(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
def other(): return nn.Linear(9, 3)
class Pair(nn.Linear):
    def forward(self, x): return super().forward(x.flatten(1)), x
def pair(): return Pair(64, 3)
class Drawn(nn.Linear):
    def forward(self, x): return super().forward(x.flatten(1)) + torch.rand(())
def drawn(): return Drawn(64, 3)
def legacy():
    made = plain()
    torch.nn.utils.weight_norm(made[1])
    return made
class Stateful(nn.Linear):
    def forward(self, x): return super().forward(x.flatten(1))
    def get_extra_state(self): return {"a": 1}
    def set_extra_state(self, state): pass
def stateful(): return Stateful(64, 3)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that only the current folder has."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_factories.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("import own_absent")
    (tmp_path / "own_wrong.py").write_text("1 +")
    before = set(sys.modules)
    yield "own_factories"
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def made(name: str) -> nn.Module:
    return own_network(name, shape=SHAPE, classes=CLASSES)


def test_a_factory_is_given_what_it_names(module: str) -> None:
    path = list(sys.path)
    assert made(f"{module}:fitted")(torch.zeros(2, *SHAPE)).shape == (2, CLASSES)
    made(f"{module}:kept")
    assert sys.modules[module].seen == [(SHAPE, CLASSES, 2), {}]
    for name in ("plain", "Own", "Own.make"):
        assert made(f"{module}:{name}").training
    assert sys.path == path


WRONG_FACTORIES = [
    ("own_absent:make", "there is no module own_absent in the current folder"),
    ("own_factories.py:make", "say own_factories, without .py"),
    ("own_broken:make", "importing own_broken failed: No module named 'own_absent'"),
    ("own_wrong:make", "importing own_wrong failed: invalid syntax"),
    ("own_factories:", "is named module:factory"),
    ("../own:make", "is named module:factory"),
    ("os:abort", "belongs to Python itself"),
    ("own_factories:absent", "own_factories has no absent"),
    ("own_factories:Own.absent", "own_factories has no Own.absent"),
    ("own_factories:seen", "is a list and not a function that makes a network"),
    ("own_factories:network", "is a Sequential and not a function"),
    ("own_factories:fails", "could not make a network: no"),
    ("own_factories:leaves", "could not make a network: 3"),
    ("own_factories:number", "made an int and not a torch.nn.Module"),
    ("own_factories:needs", "needs an argument 'width'"),
    ("own_factories:wide", r"answers with shape \(5,\) and not with 3 class scores"),
    ("own_factories:pair", "answers with a tuple"),
    ("own_factories:other", r"cannot take inputs of shape \(1, 8, 8\)"),
    ("own_factories:drawn", "draws random numbers in evaluation mode"),
    ("own_factories:legacy", "cannot be copied"),
    ("own_factories:stateful", "keeps a dict at '_extra_state' in its state"),
]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, about legacy weight_norm
@pytest.mark.parametrize(("name", "sentence"), WRONG_FACTORIES, ids=[row[0] for row in WRONG_FACTORIES])
def test_a_wrong_factory_costs_one_sentence(module: str, name: str, sentence: str) -> None:
    path = list(sys.path)
    with pytest.raises(RequestError, match=sentence) as caught:
        made(name)
    assert "\n" not in str(caught.value)
    assert sys.path == path


def test_a_fingerprint_is_of_the_architecture_and_not_of_its_weights(net: Net) -> None:
    own = fingerprint(net, SHAPE)
    torch.manual_seed(1)
    assert same_fingerprint(own, fingerprint(Net(), SHAPE))
    assert same_fingerprint(own, fingerprint(hb.models.freeze_batch_norm(net), SHAPE))
    net.middle[2] = nn.Sigmoid()  # the same weights, another function of them
    assert not same_fingerprint(own, fingerprint(net, SHAPE))
    assert not same_fingerprint(own, fingerprint(Net(classes=4), SHAPE))


# ----------------------------------------------------------------------------------------- BatchNorm


def test_frozen_batch_norm_is_the_network_in_evaluation_mode_and_keeps_records_apart(net: Net) -> None:
    frozen = hb.models.freeze_batch_norm(net)
    x = torch.rand(5, *SHAPE)
    assert torch.equal(frozen.train()(x), net.eval()(x))
    torch.testing.assert_close(frozen(x)[:1], frozen(x[:1]))
    assert list(frozen.state_dict()) == list(net.state_dict())
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in frozen.state_dict().items())
    assert not any(name.startswith(("body.1", "middle.1")) for name, _ in frozen.named_parameters())
    net.load_state_dict(frozen.state_dict())
    assert isinstance(net.body[1], nn.BatchNorm2d)  # the one that was handed in


def test_one_batch_norm_at_two_places_stays_one() -> None:
    layer = nn.BatchNorm1d(4)
    frozen = hb.models.freeze_batch_norm(nn.Sequential(layer, nn.Linear(4, 4), layer))
    assert frozen[0] is frozen[2]


class Activated(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (Activated(1), "Activated at '0' does more than BatchNorm"),
        (nn.BatchNorm2d(1, track_running_stats=False), "keeps no running statistics to freeze"),
    ],
)
def test_batch_norm_that_cannot_be_frozen_is_refused(layer: nn.Module, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        hb.models.freeze_batch_norm(nn.Sequential(layer, nn.Flatten()))


# ---------------------------------------------------------------------------------- what is trained


def trained(model: nn.Module) -> list[str]:
    return [name for name, weight in model.named_parameters() if weight.requires_grad]


def test_patterns_name_what_is_trained(net: Net) -> None:
    model = hb.models.freeze_batch_norm(net)
    assert trained(hb.models.train_only(model, "head.*")) == ["head.weight", "head.bias"]
    assert trained(hb.models.train_only(model, "head.bias, *.0.bias")) == [
        "body.0.bias",
        "middle.0.bias",
        "head.bias",
    ]
    assert trained(hb.models.train_only(model, "head.weight", "body.3.*")) == [
        "body.3.weight",
        "body.3.bias",
        "head.weight",
    ]
    for pattern, sentence in (
        ("tail.*", r"no weight of the network fits 'tail\.\*'; it has body.0.weight"),
        ("body.1.*", "names constants only"),
        (" , ", "no pattern"),
    ):
        with pytest.raises(RequestError, match=sentence):
            hb.models.train_only(model, pattern)
    assert trained(model) == ["body.3.weight", "body.3.bias", "head.weight"]  # a refusal changes nothing


class Tied(nn.Module):
    """The head is the first layer's weight again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 3, bias=False), nn.Linear(64, 3, bias=False)
        self.back = nn.Linear(3, 64)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(self.back(self.first(x.flatten(1))).tanh())
        return answer


def test_a_tied_weight_is_trained_under_any_of_its_names() -> None:
    assert trained(hb.models.train_only(Tied(), "last.*")) == ["first.weight"]


# ---------------------------------------------------------------------------------------- weights


def test_weights_come_from_the_file_and_a_head_may_begin_fresh(net: Net, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file(net.state_dict(), path)
    other = Net()
    assert hb.models.load_weights(other, path).fresh == ()
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in other.state_dict().items())

    backbone = {name: each for name, each in net.state_dict().items() if not name.startswith("head.")}
    save_file({name: each for name, each in backbone.items() if "tracked" not in name}, path)
    wider = hb.models.train_only(hb.models.freeze_batch_norm(Net(classes=5)), "head.*")
    head = wider.head.weight.clone()
    assert hb.models.load_weights(wider, path).fresh == ("head.weight", "head.bias")
    assert torch.equal(wider.head.weight, head)
    assert torch.equal(wider.body[1].running_mean, net.body[1].running_mean)

    tied = Tied()
    save_file(
        {"first.weight": torch.ones(3, 64), **{f"back.{k}": v for k, v in tied.back.state_dict().items()}},
        path,
    )
    assert hb.models.load_weights(tied, path).fresh == ()
    assert bool((tied.last.weight == 1).all())


def without(name: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda state: {key: value for key, value in state.items() if key != name}


WRONG_WEIGHTS: list[tuple[str, Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = [
    (
        "more",
        lambda state: {**state, "module.x": torch.ones(1)},
        "holds 'module.x', which the network does not",
    ),
    ("shape", lambda state: {**state, "head.bias": torch.ones(7)}, r"'head.bias' with shape \(7,\)"),
    ("kind", lambda state: {**state, "head.bias": torch.ones(3, dtype=torch.int64)}, "as torch.int64"),
    ("nan", lambda state: {**state, "head.bias": torch.full((3,), torch.nan)}, "not finite"),
    ("frozen", without("body.0.weight"), "lacks 'body.0.weight', which is not trained"),
    ("statistics", without("body.1.running_var"), "lacks 'body.1.running_var'"),
    ("nothing", lambda state: {}, "lacks"),
]


@pytest.mark.parametrize(("name", "change", "sentence"), WRONG_WEIGHTS, ids=[row[0] for row in WRONG_WEIGHTS])
def test_a_wrong_file_is_refused_and_the_network_stays(
    net: Net,
    tmp_path: Path,
    name: str,
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    sentence: str,
) -> None:
    model = hb.models.train_only(hb.models.freeze_batch_norm(Net()), "head.*")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    save_file(change(dict(net.state_dict())), tmp_path / "w.safetensors")
    with pytest.raises(RequestError, match=sentence):
        hb.models.load_weights(model, tmp_path / "w.safetensors")
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.bin", "w.ckpt", "it's.Model"])
def test_a_pickled_file_is_refused_unread_with_the_line_that_converts_it(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(net.state_dict(), name)
    with pytest.raises(RequestError, match="can hold code and is not read") as caught:
        hb.models.load_weights(Net(), name)
    words = shlex.split(str(caught.value).split("`")[1])  # as a shell takes it
    assert words[:2] == ["python", "-c"]
    assert "weights_only=True" in words[2]
    exec(words[2], {})
    converted = load_file(Path(name).with_suffix(".safetensors"))
    assert all(torch.equal(value, converted[key]) for key, value in net.state_dict().items())


# ------------------------------------------------------------------------- per-record gradients


def private_head(net: Net, *patterns: str) -> nn.Module:
    return hb.models.train_only(hb.models.freeze_batch_norm(net), *(patterns or ("head.*",)))


class Twice(nn.Module):
    """One layer that runs twice, dropout, and torch's present weight norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.utils.parametrizations.weight_norm(nn.Linear(64, 8))
        self.drop, self.again, self.head = nn.Dropout(0.5), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.first(x.flatten(1)).tanh())
        answer: Tensor = self.head(self.again(self.again(x).tanh()))
        return answer


PARTLY_FROZEN: list[tuple[str, Callable[[], nn.Module], tuple[str, ...]]] = [
    ("head", Net, ("head.*",)),
    ("middle of the network", Net, ("body.3.weight", "middle.0.bias")),
    ("first layer", Net, ("body.0.*",)),
    ("tied", Tied, ("last.*",)),
    ("called twice", Twice, ("again.*",)),
    ("behind dropout", Twice, ("head.bias", "again.weight")),
    ("weight norm", Twice, ("first.*",)),
]


@pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")
@pytest.mark.parametrize(("name", "make", "patterns"), PARTLY_FROZEN, ids=[row[0] for row in PARTLY_FROZEN])
def test_both_paths_agree_and_cover_the_trained_weights_only(
    name: str, make: Callable[[], nn.Module], patterns: tuple[str, ...]
) -> None:
    torch.manual_seed(0)
    model = hb.models.train_only(hb.models.freeze_batch_norm(make()), *patterns).double()
    views, labels = torch.rand(4, 2, *SHAPE, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    assert (
        ClippedGradients(model, clipping=FlatClip(1.0), path="fast").clipped_sum(views, labels).records == 4
    )
    model.eval()
    fast, _ = FastPath(model, mean_cross_entropy).gradients(views, labels)
    general, _ = GeneralPath(model, mean_cross_entropy).gradients(views, labels)
    assert set(fast) == set(general) == set(trained(model))
    assert disagreement(fast, general) is None
    for record in range(4):  # the norm that is clipped, by plain autograd over the trained weights alone
        loss = mean_cross_entropy(model, views[record], labels[record])
        own = torch.autograd.grad(loss, [weight for weight in model.parameters() if weight.requires_grad])
        norm = torch.cat([each.flatten() for each in own]).norm()
        for gradients in (fast, general):
            found = torch.stack([each.norms()[record] for each in gradients.values()]).norm()
            torch.testing.assert_close(found, norm, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("clipping", [FlatClip(0.01), PerLayerClip(0.01)], ids=["flat", "per layer"])
def test_the_whole_bound_is_for_the_trained_weights(net: Net, clipping: Any) -> None:
    """Frozen weights take no share of it: a record with a long gradient is clipped to all of the bound."""
    engine = ClippedGradients(private_head(net), clipping=clipping)
    total = engine.clipped_sum(torch.rand(1, 1, *SHAPE), torch.tensor([1]))
    assert set(total.gradients) == {"head.weight", "head.bias"}
    norm = torch.cat([each.flatten() for each in total.gradients.values()]).norm()
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


class Remembering(nn.Module):
    """Keeps a mean of what it has seen, and looks at it in evaluation mode only."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, CLASSES)
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
            return self.head(x)
        return self.head(x - self.mean)


@pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")
@pytest.mark.parametrize("loss", [mean_cross_entropy, lambda predict, views, label: predict(views).sum()])
def test_a_network_that_remembers_records_is_refused(loss: Any) -> None:
    with pytest.raises(RequestError, match="changes its own 'mean'"):
        ClippedGradients(Remembering(), loss, clipping=FlatClip(1.0)).prepare(torch.rand(1, 2, *SHAPE))
    ClippedGradients(Remembering().eval(), loss, clipping=FlatClip(1.0)).prepare(torch.rand(1, 2, *SHAPE))


# ---------------------------------------------------------------------------------------- training


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(24, *SHAPE, generator=generator), torch.randint(CLASSES, (24,), generator=generator)


def plan() -> hb.PrivacyPlan:
    return hb.PrivacyPlan(records=24, batch=12, epochs=2, noise_multiplier=1.0, delta=1e-5)


METHODS: list[tuple[str, Callable[..., Any]]] = [
    ("dp-sgd", hb.methods.DPSGD),
    (
        "private-smoothing",
        lambda model, **settings: hb.methods.PrivateSmoothing(model, sigma=0.5, **settings),
    ),
    ("adaclip", hb.methods.AdaClip),
    ("directional", hb.methods.Directional),
]


@pytest.mark.parametrize(("name", "method"), METHODS, ids=[row[0] for row in METHODS])
def test_frozen_weights_stay_bit_for_bit_whoever_is_in_the_data(
    net: Net, name: str, method: Callable[..., Any]
) -> None:
    """Layer by layer, against a neighbouring set and against another one altogether, with the same noise."""
    x, y = data()
    neighbour = (torch.cat([x[:5], x[6:]]), torch.cat([y[:5], y[6:]]))
    model = private_head(net)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    heads = []
    for records in ((x, y), neighbour, data(seed=1)):
        fitted = method(model, plan=plan(), noise_seed=3).fit(records, classes=CLASSES)
        released = fitted.model.state_dict()
        assert set(released) == set(before)
        for key, value in released.items():
            if not key.startswith("head."):
                assert torch.equal(value, before[key]), key
        assert frozen_sha256(fitted.model) == frozen_sha256(model)
        heads.append(released["head.weight"])
    assert not torch.equal(heads[0], before["head.weight"])
    assert not torch.equal(heads[0], heads[1])  # the records did go into training
    assert not torch.equal(heads[0], heads[2])


def test_public_records_do_not_move_what_is_frozen_either(net: Net) -> None:
    model, (x, y) = private_head(net), data()
    public = hb.data.Dataset(name="public", x=x, y=y, classes=CLASSES)
    method = hb.methods.PrivateSmoothing(model, plan=plan(), sigma=0.5, public_epochs=1)
    fitted = method.fit(data(seed=1), classes=CLASSES, public=public)
    assert frozen_sha256(fitted.model) == frozen_sha256(model)


def margin(scores: Tensor, labels: Tensor) -> Tensor:
    own = scores.gather(2, labels.view(-1, 1, 1).expand(-1, scores.shape[1], 1)).squeeze(2)
    return (1 - own + scores.mean(2)).clamp_min(0).mean(1)


def with_penalty(predict: Callable[[Tensor], Tensor], views: Tensor, label: Tensor) -> Tensor:
    """Any function of one record: here its cross-entropy and how far its two answers are apart."""
    scores = predict(views)
    own = nn.functional.cross_entropy(scores, label.expand(len(scores)))
    return own + (predict(views * 0.5) - scores).square().mean()


@pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")
@pytest.mark.parametrize("loss", [ScoreLoss(margin), with_penalty], ids=["of scores", "of anything"])
@pytest.mark.parametrize(("name", "method"), METHODS[:2], ids=[row[0] for row in METHODS[:2]])
def test_any_loss_of_one_record_is_trained_with_and_clipped(
    net: Net, name: str, method: Callable[..., Any], loss: Any
) -> None:
    model = private_head(net)
    heads = []
    for own in ({}, {"loss": loss}):
        trainer = method(model, plan=plan(), noise_seed=3, clipping=0.01, **own).trainer(
            hb.data.Dataset(name="own", x=data()[0], y=data()[1], classes=CLASSES)
        )
        step = trainer.advance().private
        total = torch.cat([each.flatten() for each in step.gradients.values()]).norm()
        assert float(total) <= 0.01 * step.records * 1.001
        heads.append(trainer.model.head.weight.detach())
    assert not torch.equal(*heads)


def test_wrong_losses_are_refused(net: Net) -> None:
    model = private_head(net)
    for method in (hb.methods.DPSGD, METHODS[1][1]):
        with pytest.raises(RequestError, match="ScoreLoss of the scores"):
            method(model, plan=plan(), loss=nn.CrossEntropyLoss())
    with pytest.raises(RequestError, match="leave out loss="):
        hb.methods.PrivateSmoothing(model, plan=plan(), sigma=1.0, macer=1.0, loss=with_penalty)
    public = hb.data.Dataset(name="public", x=data()[0], y=data()[1], classes=CLASSES)
    with pytest.raises(RequestError, match="public records are trained on with the cross-entropy"):
        METHODS[1][1](model, plan=plan(), loss=with_penalty).fit(data(), classes=CLASSES, public=public)


class NoFirstMap(nn.Module):
    """Two ways from the input, and no layer of torch's among them."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(64, CLASSES) / 8)
        self.right = nn.Parameter(torch.zeros(64, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return torch.einsum("nd,dc->nc", x, self.left) + x.square() @ self.right


@pytest.mark.filterwarnings("ignore::hauberk.gradients.GeneralPathNotice")
def test_a_network_without_a_first_map_is_certified_by_noise_at_the_input() -> None:
    torch.manual_seed(0)
    model = hb.models.train_only(NoFirstMap(), "right")
    fitted = hb.methods.PrivateSmoothing(model, plan=plan(), sigma=0.25).fit(data(), classes=CLASSES)
    assert torch.equal(fitted.model.left, model.left)
    certificates = fitted.classifier.certify(data()[0][:6], samples=200, alpha=0.01)
    assert float(certificates.radii.max()) > 0
    with pytest.raises(RequestError, match="no Linear or Conv2d layer runs"):
        hb.methods.PixelDP(model, plan=plan(), sigma=1.0).fit(data(), classes=CLASSES)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_network_that_cannot_be_copied_is_refused_in_a_sentence() -> None:
    model = nn.Sequential(nn.Flatten(), torch.nn.utils.weight_norm(nn.Linear(64, CLASSES)))
    model(torch.zeros(1, 64))
    with pytest.raises(RequestError, match="cannot be copied"):
        hb.methods.DPSGD(model, plan=plan()).fit(data(), classes=CLASSES)
