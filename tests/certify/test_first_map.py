"""Which networks may have noise after their first map, which are refused, and what is left of a network."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, dropout, normalize

from hauberk.certify.first_map import find_first_map
from hauberk.errors import RequestError
from hauberk.models import build, names

SHAPE = (1, 6, 6)


class Net(nn.Module):
    """A small network whose way from input to scores is the given function."""

    def __init__(self, way: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.second = nn.Conv2d(2, 1, 3, padding=1)
        self.dense = nn.Linear(2 * 36, 3)
        self.wide = nn.Linear(3 * 36, 3)
        self.pixels = nn.Linear(36, 3)
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)

    def head(self, h: Tensor) -> Tensor:
        scores: Tensor = self.dense(torch.relu(h).flatten(1))
        return scores


def dead_skip(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        around = x.flatten(1)[:, :3]
    return net.head(net.conv(x)) + around


REFUSED: dict[str, tuple[Callable[[Net, Tensor], Tensor], str | None, str]] = {
    "ReLU before": (lambda net, x: net.head(net.conv(torch.relu(x))), None, "more than reshape"),
    "clamp before": (lambda net, x: net.head(net.conv(x.clamp(-3, 3))), None, "more than reshape"),
    "scaling before": (lambda net, x: net.head(net.conv(2 * x - 1)), None, "more than reshape"),
    "normalisation before": (
        lambda net, x: net.head(net.conv(normalize(x, dim=-1))),
        None,
        "more than reshape",
    ),
    "turned before": (lambda net, x: net.head(net.conv(x.transpose(2, 3))), None, "more than reshape"),
    "a later layer": (
        lambda net, x: net.head(net.conv(x)),
        "dense",
        "more than reshape",
    ),
    "another layer before": (
        lambda net, x: net.head(net.conv(net.second(net.conv(x)))),
        "second",
        "more than reshape",
    ),
    "batch folded into pixels": (
        lambda net, x: net.head(net.conv(x.view(1, 1, -1, 6)).view(len(x), 2, 6, 6)),
        None,
        "more than reshape",
    ),
    "added": (lambda net, x: net.head(net.conv(x) + x), None, "way around the layer 'conv'"),
    "concatenated": (
        lambda net, x: net.wide(torch.cat((net.conv(x), x), 1).flatten(1)),
        None,
        "way around",
    ),
    "faint": (lambda net, x: net.head(net.conv(x)) + 1e-30 * x.mean(), None, "way around"),
    "sign": (lambda net, x: net.head(net.conv(x) + x.sign()), None, "way around"),
    "argmax": (
        lambda net, x: net.head(net.conv(x)) + x.flatten(1).argmax(1, keepdim=True),
        None,
        "way around",
    ),
    "detached": (lambda net, x: net.head(net.conv(x) + x.detach()), None, "way around"),
    "hidden from autograd": (dead_skip, None, "way around"),
    "beside": (lambda net, x: net.head(net.conv(x)) + net.pixels(x.flatten(1)), None, "way around"),
    "twice": (lambda net, x: net.head(net.conv(x) + net.conv(x.flip(-1))), None, "2 times"),
    "twice, one after another": (
        lambda net, x: net.head(net.conv(net.second(net.conv(x)))),
        None,
        "2 times",
    ),
    "by function": (
        lambda net, x: net.head(conv2d(x, net.conv.weight, padding=1)),
        "conv",
        "0 times",
    ),
    "by function, then layers": (
        lambda net, x: net.head(conv2d(x, net.conv.weight, padding=1)),
        None,
        "more than reshape",
    ),
    "no layer at all": (
        lambda net, x: torch.relu(conv2d(x, net.conv.weight)).flatten(1)[:, :3],
        None,
        "no Linear or Conv2d layer runs",
    ),
    "unknown name": (lambda net, x: net.head(net.conv(x)), "conv9", "no Linear or Conv2d layer 'conv9'"),
    "chance inside": (lambda net, x: net.head(dropout(net.conv(x))), None, "random numbers of its own"),
    "two answers": (lambda net, x: (net.conv(x), x), None, "one tensor"),  # type: ignore[arg-type, return-value]
    "one answer for all": (lambda net, x: net.head(net.conv(x)).sum(0)[:1], None, "a row of scores for each"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("frozen", [False, True])
def test_refusals(case: str, frozen: bool) -> None:
    way, name, sentence = REFUSED[case]
    net = Net(way).requires_grad_(not frozen)
    before = snapshot(net)
    with pytest.raises(RequestError, match=sentence):
        find_first_map(net, SHAPE, name)
    assert snapshot(net) == before


def snapshot(net: nn.Module) -> list[tuple[str, object]]:
    """Everything that looking at a network could leave behind."""
    state: list[tuple[str, object]] = []
    for path, layer in net.named_modules():
        state.append((path, sorted(vars(layer))))
        state.append((path, (layer.training, len(layer._forward_hooks), len(layer._forward_pre_hooks))))
    state += [(path, value.tolist()) for path, value in net.state_dict().items()]
    state += [(path, value.grad) for path, value in net.named_parameters()]
    return state


def test_layers_that_compute_something_else_are_refused() -> None:
    class Twisted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).abs()

    with pytest.raises(RequestError, match="forward of its own"):
        find_first_map(nn.Sequential(Twisted(3, 3)), (3,))
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda _, __, out: out.abs())
    with pytest.raises(RequestError, match="hooks"):
        find_first_map(hooked, (3,))
    patched = nn.Linear(3, 3)
    patched.forward = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(RequestError, match="forward of its own"):
        find_first_map(patched, (3,))


def test_a_parametrised_layer_is_its_present_weight() -> None:
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    found = find_first_map(net, (3,))
    weight = net[0].weight.detach().double()
    torch.testing.assert_close(found.gram(1.0), weight.T @ weight)


ACCEPTED: dict[str, tuple[nn.Module, tuple[int, ...], str]] = {
    "bare layer": (nn.Linear(4, 3), (4,), ""),
    "flattened": (nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 3)), SHAPE, "1"),
    "in place": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32, 3)),
        SHAPE,
        "0",
    ),
    "dropout and batch norm": (
        nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(32, 3)
        ),
        SHAPE,
        "0",
    ),
    "nested": (
        nn.Sequential(
            OrderedDict(
                stem=nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 2, 3), act=nn.Tanh())),
                head=nn.Sequential(nn.Flatten(), nn.Linear(32, 3)),
            )
        ),
        SHAPE,
        "stem.conv",
    ),
    "layers not in the order of running": (Net(lambda net, x: net.head(net.conv(x))), SHAPE, "conv"),
    "double": (nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)).double(), (4,), "0"),
    "answers without a gradient": (
        Net(lambda net, x: net.head(net.conv(x)).argmax(1, keepdim=True)),
        SHAPE,
        "conv",
    ),
    "reads the input's size": (
        Net(lambda net, x: net.head(net.conv(x)) * x.shape[-1] + torch.zeros_like(x).sum()),
        SHAPE,
        "conv",
    ),
    "overwrites the layer's output": (Net(lambda net, x: net.head(net.conv(x).mul_(2))), SHAPE, "conv"),
    "keyword": (Net(lambda net, x: net.head(net.conv(input=x))), SHAPE, "conv"),
}
for network in sorted(set(names()) - {"moved-tanh-cnn"}):  # refused: tests/models/test_moved_average.py
    for shape in ((1, 28, 28), (3, 32, 32)):
        if network not in ("paper-cifar-cnn", "wrn-16-4", "resnet-18") or shape[0] == 3:
            ACCEPTED[f"{network} {shape[0]}"] = (build(network, shape=shape, classes=4), shape, "any")


@pytest.mark.parametrize("case", ACCEPTED)
def test_first_map_and_rest_are_the_network(case: str) -> None:
    net, shape, name = ACCEPTED[case]
    before = snapshot(net) if name != "any" else None
    found = find_first_map(net, shape)
    if before is not None:
        assert found.name == name
        assert snapshot(net) == before
    dtype = next(net.parameters()).dtype
    x = torch.rand((3, *shape), generator=torch.Generator().manual_seed(1)).to(dtype)
    net.eval()
    with torch.no_grad():
        h = found.apply(x)
        assert h.shape[1:] == found.output_shape
        torch.testing.assert_close(found.rest(h.clone(), x[:1]), net(x), rtol=1e-5, atol=1e-6)
        elsewhere = torch.full_like(x, 7.0)
        assert torch.equal(found.rest(h.clone(), elsewhere), found.rest(h.clone(), x))  # x is not read
        assert found.rest(h[:1].repeat_interleave(5, 0), x).shape[0] == 5  # as many as h, whatever x has
    assert (found.rows, found.columns) == (h[0].numel(), x[0].numel())
    net.train()


def test_a_named_layer_is_found_by_its_name() -> None:
    net, shape, _ = ACCEPTED["nested"]
    assert find_first_map(net, shape, "stem.conv").name == "stem.conv"
    with pytest.raises(RequestError, match="more than reshape"):
        find_first_map(net, shape, "head.1")


def test_the_layer_is_not_computed_in_the_rest() -> None:
    net, shape, _ = ACCEPTED["flattened"]
    net = copy.deepcopy(net)
    found = find_first_map(net, shape)
    h = found.apply(torch.rand(2, *shape))
    scores = found.rest(h, h)
    with torch.no_grad():
        found.layer.weight.fill_(float("nan"))
    assert torch.equal(found.rest(h, h), scores)


def test_gradients_flow_from_the_scores_to_the_input() -> None:
    """What attacks on the smoothed classifier need."""
    net, shape, _ = ACCEPTED["in place"]
    found = find_first_map(net, shape)
    x = torch.rand(2, *shape, requires_grad=True)
    (through,) = torch.autograd.grad(found.rest(found.apply(x) + 0.1, x).square().sum(), x)
    net = copy.deepcopy(net)
    with torch.no_grad():
        net[0].bias += 0.1  # type: ignore[index, operator]
    (plain,) = torch.autograd.grad(net(x).square().sum(), x)
    torch.testing.assert_close(through, plain)


def test_the_model_is_as_it_was_also_when_the_rest_raises() -> None:
    net, shape, _ = ACCEPTED["flattened"]
    found = find_first_map(net, shape)
    x = torch.rand(2, *shape)
    expected, before = net(x), snapshot(net)
    with pytest.raises(RuntimeError):
        found.rest(torch.zeros(2, 17), x)  # does not fit the next layer
    assert snapshot(net) == before
    assert torch.equal(net(x), expected)


def test_zeros_for_the_input_take_no_memory() -> None:
    """A million copies of an input would: the rest runs on one zero, seen from everywhere."""
    seen: list[int] = []

    def way(net: Net, x: Tensor) -> Tensor:
        seen.append(x.untyped_storage().nbytes())
        return net.head(net.conv(x))

    found = find_first_map(Net(way), SHAPE)
    found.rest(torch.zeros(64, *found.output_shape), torch.zeros(1, *SHAPE))
    assert seen[-1] == 4
