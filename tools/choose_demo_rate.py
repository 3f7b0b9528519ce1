"""How the demo's rate and views were chosen: on MNIST training images that are not part of `digits`.

    python tools/choose_demo_rate.py DATA_FOLDER [--rates 2 3 4] [--views 2] [--seeds 3] [--device cuda]

Prints, for each rate and seed, accuracy without noise and certified accuracy at l2 radius 0.25 on held-out
training images. Test images are not looked at.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import hauberk as hb
from hauberk.data import Dataset
from hauberk.methods.run import base_accuracy


def held_out(data_dir: Path) -> Dataset:
    """Every tenth MNIST training image that `digits` does not contain."""
    mnist = hb.load_data("mnist", data_dir=data_dir).train
    used = torch.zeros(len(mnist), dtype=torch.bool)
    for digit in range(10):
        members = (mnist.y == digit).nonzero().squeeze(1)
        used[members[torch.arange(2000) * len(members) // 2000]] = True
    rows = (~used).nonzero().squeeze(1)[::10]
    return Dataset(name="held out", x=mnist.x[rows], y=mnist.y[rows], classes=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.5, 2, 3, 4, 5])
    parser.add_argument("--views", type=int, default=1)
    parser.add_argument("--every", type=int, default=4, help="certify every so many of the 4,000 images")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    digits, validation = hb.load_data("digits"), held_out(options.data_dir)
    plan = hb.PrivacyPlan.calibrate(epsilon=2.99, delta=1e-5, records=20_000, batch=1024, epochs=20)
    x, truth = validation.x[:: options.every], validation.y[:: options.every].numpy()
    for rate in options.rates:
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            model = hb.models.build("small-tanh-cnn", shape=(1, 28, 28), classes=10).to(options.device)
            method = hb.methods.PrivateSmoothing(
                model,
                plan=plan,
                sigma=0.25,
                views=options.views,
                optimisation=hb.training.Optimisation(lr=rate),
            )
            run = method.fit(digits.train)
            certificates = run.classifier.certify(x, samples=1000)
            certified = ((certificates.labels == truth) & (certificates.radii >= 0.25)).mean()
            base = base_accuracy(run.model, validation)
            print(
                f"rate {rate:g} seed {seed}: base {base:.4f}, certified at 0.25 {certified:.4f}", flush=True
            )


if __name__ == "__main__":
    main()
