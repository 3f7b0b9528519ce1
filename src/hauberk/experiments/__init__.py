"""One small file per figure or table of the papers; ``hauberk reproduce NAME`` runs it.

An experiment is a function from a size and a seed to a `Result`: numbers for machines, a table for people,
and a picture. To add one: one file, and one row in ``EXPERIMENTS``; the table test runs it at tiny size.
"""

from collections.abc import Mapping
from types import MappingProxyType

from hauberk.experiments import (
    ain_ablation,
    ain_decay,
    ain_mnist,
    ain_targets,
    ain_time,
    ain_tiny,
    ain_training,
    conv_gain,
    directional_cifar,
    directional_cost,
    directional_mnist,
    directional_sensitivity,
    directional_truth,
    distortion_rate,
    flagship,
    flagship_ablation,
    hgm_figure_1,
    hgm_figures,
    igamt_epsilon,
    igamt_histograms,
    igamt_pictures,
    igamt_table,
    secure_sgd_figures,
    stobatch_figures,
    stobatch_rivals,
    stobatch_scaling,
    stobatch_strong,
    synth_table,
    transdenoiser_figures,
    utility_subspace,
)
from hauberk.experiments.result import Experiment, Result, Size, to_json, write

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "hgm-figure-1": Experiment(
            source="000 Fig. 1",
            summary="noise scale against epsilon for GM, AGM, EGM and HGM",
            run=hgm_figure_1.run,
        ),
        "hgm-figures": Experiment(
            source="000 Figs. 2 and 3",
            summary="certified accuracy against the attack's size, PixelDP and HGM-PixelDP",
            run=hgm_figures.run,
        ),
        "secure-sgd-figures": Experiment(
            source="000 Figs. 4 and 5",
            summary="accuracy under attack against epsilon, and four certificates on the same votes",
            run=secure_sgd_figures.run,
        ),
        "stobatch-figures": Experiment(
            source="003 Figs. 2-7",
            summary="StoBatch beside its rivals: attacked in two ways, certified as claimed and as proven",
            run=stobatch_figures.run,
        ),
        "stobatch-rivals": Experiment(
            source="003 Figs. 2 and 6, one epsilon",
            summary="StoBatch, Secure-SGD and DP-SGD, settings chosen on held-out records: PGD and radii",
            run=stobatch_rivals.run,
        ),
        "stobatch-strong": Experiment(
            source="003 Figs. 8 and 9",
            summary="StoBatch beside Secure-SGD under attacks of up to 2,000 steps",
            run=stobatch_strong.run,
        ),
        "stobatch-scaling": Experiment(
            source="003 section 4, scalability",
            summary="seconds per epoch against trainers and attack steps, batch by batch and distributed",
            run=stobatch_scaling.run,
        ),
        "transdenoiser-figures": Experiment(
            source="004 Figs. 6.2-6.4 and 9",
            summary="TransDenoiser beside its ablations and Secure-SGD: certified and attacked accuracy",
            run=transdenoiser_figures.run,
        ),
        "flagship": Experiment(
            source="DP-CERT (TMLR 2024), main table",
            summary="private smoothing: average certified radius beside the best published and non-private",
            run=flagship.run,
            run_seeds=flagship.run_seeds,
        ),
        "flagship-ablation": Experiment(
            source="none: how the flagship's settings are chosen",
            summary="what each ingredient of private smoothing brings, on held-out training records",
            run=flagship_ablation.run,
        ),
        "conv-gain": Experiment(
            source="000 Eq. 6, 003 section 3.4",
            summary="gain of a convolution: all maps together against one map as published",
            run=conv_gain.run,
        ),
        "directional-truth": Experiment(
            source="002 Eqs. 11-13, Table 1",
            summary="claimed against proven epsilon of the closed form, MNIST setting",
            run=directional_truth.run,
        ),
        "directional-mnist": Experiment(
            source="002 Figs. 3a and 4a",
            summary="accuracy against epochs and epsilon, every generator, as published and sound",
            run=directional_mnist.run,
        ),
        "directional-sensitivity": Experiment(
            source="002 Figs. 5a, 5d and 6a",
            summary="accuracy against lot size, pruning ratio and clip value",
            run=directional_sensitivity.run,
        ),
        "directional-cifar": Experiment(
            source="002 Fig. 4c",
            summary="accuracy against epsilon on CIFAR-10 with a GroupNorm ResNet-18, gradients pruned",
            run=directional_cifar.run,
        ),
        "directional-cost": Experiment(
            source="002 Table 2",
            summary="time per lot of each noise generator",
            run=directional_cost.run,
        ),
        "distortion-rate": Experiment(
            source="002 section 5, Fig. 2",
            summary="the least distortion at a rate, and the mechanisms above it",
            run=distortion_rate.run,
        ),
        "utility-subspace": Experiment(
            source="002 Fig. 1",
            summary="cost of the two-input AND network under perturbed parameters",
            run=utility_subspace.run,
        ),
        "ain-mnist": Experiment(
            source="004 Tables 5.1 and 5.4, Figs. 5.5 and 5.12",
            summary="AIN beside ATN, AdvGAN, I-FGSM and C&W on digits: success, distance, time per example",
            run=ain_mnist.run,
        ),
        "ain-targets": Experiment(
            source="004 Fig. 5.8",
            summary="AIN aimed at different classes: success against the radius",
            run=ain_targets.run,
        ),
        "ain-tiny": Experiment(
            source="004 Tables 5.2, 5.3 and 5.5",
            summary="AIN beside its rivals on ten classes of Tiny ImageNet",
            run=ain_tiny.run,
        ),
        "ain-ablation": Experiment(
            source="004 Figs. 5.6, 5.7, 5.13 and 5.14",
            summary="AIN without parts of its loss and of its network",
            run=ain_ablation.run,
        ),
        "ain-decay": Experiment(
            source="004 Figs. 5.16 and 5.17",
            summary="what a bound that falls is worth, and what adapting its fall is worth",
            run=ain_decay.run,
        ),
        "ain-training": Experiment(
            source="004 Tables 5.6 and 5.7",
            summary="adversarial training with AIN, AIN without noise and I-FGSM, also under privacy",
            run=ain_training.run,
        ),
        "ain-time": Experiment(
            source="004 Table 5.8",
            summary="seconds to make 54,000 adversarial examples, by AIN and by C&W",
            run=ain_time.run,
        ),
        "synth-table": Experiment(
            source="004 section 4.3",
            summary="every synthesizer of health records, without privacy and at epsilon 3",
            run=synth_table.run,
            run_seeds=synth_table.run_seeds,
        ),
        "igamt-table": Experiment(
            source="004 Tables 4.1, 4.2 and 1",
            summary="IGAMT, its ablations and its baselines: without privacy, as published, sound",
            run=igamt_table.run,
            run_seeds=igamt_table.run_seeds,
        ),
        "igamt-epsilon": Experiment(
            source="004 Figs. 4.10 and 4.11",
            summary="distance of synthetic from real patients against proven epsilon and sigma",
            run=igamt_epsilon.run,
            run_seeds=igamt_epsilon.run_seeds,
        ),
        "igamt-histograms": Experiment(
            source="004 Figs. 4.8 and 4.9",
            summary="missing values and times between steps, real and synthetic",
            run=igamt_histograms.run,
        ),
        "igamt-pictures": Experiment(
            source="004 Figs. 4.5-4.7",
            summary="real and synthetic patients in the plane, and mean courses",
            run=igamt_pictures.run,
        ),
    }
)
"""Experiments by the name the command line gives them."""

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Size", "to_json", "write"]
