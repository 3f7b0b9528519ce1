"""Plain convolutional networks: the one usual in DP-SGD work and those of the papers.

The papers' networks have the sizes that their texts state; where a text is silent, those of the authors'
code. Their BatchNorm is GroupNorm here (see `hauberk.models.normalisation`), and the weights start as torch
starts them, not with the authors' various distributions.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from hauberk.models.normalisation import normalise_channels, normalise_units
from hauberk.models.shapes import Shape, features_left, require_image


class NeighbourMax(nn.MaxPool2d):
    """Largest value in every 2x2 window, ``MaxPool2d(2, stride=1)``, faster where no gradient is asked.

    torch's pooling kernel takes half of this network's time on a CPU. Two element-wise maxima give the same
    values much sooner; only their gradient is slower, so training keeps the kernel.
    """

    def __init__(self) -> None:
        super().__init__(2, stride=1)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return nn.functional.max_pool2d(x, 2, stride=1)
        x = torch.maximum(x[..., 1:, :], x[..., :-1, :])
        return torch.maximum(x[..., 1:], x[..., :-1])


def small_tanh_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """The small network common in DP-SGD work: 26,010 weights for MNIST.

    Sizes of the MNIST tutorial of TensorFlow Privacy; tanh instead of ReLU because bounded activations keep
    the gradients small, so that clipping bends them less (Papernot et al. 2021).
    """
    require_image("small-tanh-cnn", shape, smallest_side=14)
    return tanh_layers(shape, classes, dense=32)


def tanh_layers(shape: Shape, classes: int, *, dense: int) -> nn.Sequential:
    """Two tanh convolutions of stride 2 and one dense layer of ``dense`` units."""
    features = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 16, kernel_size=8, stride=2, padding=3),
            tanh1=nn.Tanh(),
            pool1=NeighbourMax(),
            conv2=nn.Conv2d(16, 32, kernel_size=4, stride=2),
            tanh2=nn.Tanh(),
            pool2=NeighbourMax(),
            flatten=nn.Flatten(),
        )
    )
    head = nn.Sequential(
        OrderedDict(
            hidden=nn.Linear(features_left(features, shape), dense),
            tanh3=nn.Tanh(),
            output=nn.Linear(dense, classes),
        )
    )
    return _in_a_row(features, head)


def paper_mnist_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """MNIST network of 000 (Secure-SGD): 5x5 convolutions of 32 and 64 features, 256 dense units.

    The authors' code has 25 dense units and dropout; the text says 256 and nothing of dropout.
    """
    require_image("paper-mnist-cnn", shape, smallest_side=4)
    features = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 32, kernel_size=5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, kernel_size=5, padding=2),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
        )
    )
    head = nn.Sequential(
        OrderedDict(
            hidden=nn.Linear(features_left(features, shape), 256),
            relu3=nn.ReLU(),
            output=nn.Linear(256, classes),
        )
    )
    return _in_a_row(features, head)


class ConcatenatedConvolution(nn.Module):
    """A ReLU convolution whose output is put beside its input: ``(relu(conv(x)), x)`` along the channels."""

    def __init__(self, channels: int, new_channels: int, *, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, new_channels, kernel_size, padding=kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((torch.relu(self.conv(x)), x), dim=1)


def paper_cifar_cnn(shape: Shape, classes: int) -> nn.Sequential:
    """CIFAR-10 network of 000 (Secure-SGD): convolutions of 128, 128 and 256 features, 256 dense units.

    3x3 patches (stride 2) in the first convolution, 5x5 in the others. The text gives these sizes; from the
    authors' code come the stride, a normalisation behind each ReLU and behind the dense layer, the second
    convolution put beside its input, and the average pool. Their dense activation, a maximum over one piece,
    does nothing; here it is a ReLU.
    """
    require_image("paper-cifar-cnn", shape, smallest_side=4)
    features = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 128, kernel_size=3, stride=2, padding=1),
            relu1=nn.ReLU(),
            norm1=normalise_channels(128),
            conv2=ConcatenatedConvolution(128, 128, kernel_size=5),
            norm2=normalise_channels(256),
            conv3=nn.Conv2d(256, 256, kernel_size=5, padding=2),
            relu3=nn.ReLU(),
            norm3=normalise_channels(256),
            pool=nn.AvgPool2d(2),
            flatten=nn.Flatten(),
        )
    )
    head = nn.Sequential(
        OrderedDict(
            hidden=nn.Linear(features_left(features, shape), 256),
            norm4=normalise_units(256),
            relu4=nn.ReLU(),
            output=nn.Linear(256, classes),
        )
    )
    return _in_a_row(features, head)


def lenet(shape: Shape, classes: int) -> nn.Sequential:
    """LeNet of 002 (directional noise): 5x5 convolutions of 32 and 64 features, 64 dense units.

    The text names only "LeNet"; sizes and the order ReLU, normalisation, pool are those of the authors' code.
    """
    require_image("lenet", shape, smallest_side=4)
    features = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 32, kernel_size=5, padding=2),
            relu1=nn.ReLU(),
            norm1=normalise_channels(32),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, kernel_size=5, padding=2),
            relu2=nn.ReLU(),
            norm2=normalise_channels(64),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
        )
    )
    head = nn.Sequential(
        OrderedDict(
            hidden=nn.Linear(features_left(features, shape), 64),
            relu3=nn.ReLU(),
            norm3=normalise_units(64),
            output=nn.Linear(64, classes),
        )
    )
    return _in_a_row(features, head)


def _in_a_row(features: nn.Sequential, head: nn.Sequential) -> nn.Sequential:
    """One flat sequence, so that a layer's path in messages and checkpoints is its bare name."""
    return nn.Sequential(OrderedDict([*features.named_children(), *head.named_children()]))
