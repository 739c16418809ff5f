"""The built-in optimizers are torch's, with torch's defaults."""

import inspect

import pytest
import torch

from trainlattice.contracts.options import OptionError
from trainlattice_plugin_optimizers import optimizers
from trainlattice_plugin_optimizers.options import AdamOptions, AdamWOptions, SGDOptions

pytestmark = pytest.mark.torch
KINDS = [
    (optimizers.adamw, AdamWOptions, torch.optim.AdamW),
    (optimizers.adam, AdamOptions, torch.optim.Adam),
    (optimizers.sgd, SGDOptions, torch.optim.SGD),
]


@pytest.mark.parametrize(("build", "options", "kind"), KINDS)
def test_defaults_are_torchs(build, options, kind):
    theirs = inspect.signature(kind).parameters
    for name, value in options().model_dump().items():
        assert value == theirs[name].default, name
    assert type(build(options(), [torch.zeros(1, requires_grad=True)])) is kind


@pytest.mark.parametrize(
    ("build", "options", "kind", "values"),
    [
        (*KINDS[0], {"lr": 0.1, "betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.25, "amsgrad": True}),
        (*KINDS[1], {"lr": 0.1, "betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.25, "amsgrad": True}),
        (*KINDS[2], {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.25, "nesterov": True}),
        (*KINDS[2], {"lr": 0.1, "momentum": 0.5, "dampening": 0.25}),
    ],
)
def test_options_reach_torch_and_give_its_steps(build, options, kind, values):
    ours, theirs = (torch.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    kernels = {"fused": not values.get("dampening"), "foreach": bool(values.get("dampening"))}
    pair = [(ours, build(options(**values), [ours])), (theirs, kind([theirs], **values, **kernels))]
    for name, value in values.items():
        assert pair[0][1].param_groups[0][name] == value
    for _ in range(3):
        for parameter, optimizer in pair:
            optimizer.zero_grad()
            (parameter**2).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_a_step_of_sgd_by_hand():
    """Gradient 4 at 2; the second step adds half of the first."""
    p = torch.tensor([2.0], requires_grad=True)
    optimizer = optimizers.sgd(SGDOptions(lr=0.125, momentum=0.5), [p])
    for expected in (2 - 0.125 * 4, 1.5 - 0.125 * (3 + 0.5 * 4)):
        optimizer.zero_grad()
        (p**2).sum().backward()
        optimizer.step()
        assert p.item() == expected


@pytest.mark.parametrize(
    "values", [{"nesterov": True}, {"nesterov": True, "momentum": 0.5, "dampening": 0.1}]
)
def test_nesterov_without_momentum_or_with_dampening_is_refused(values):
    with pytest.raises(ValueError, match="nesterov needs momentum above 0 and dampening 0"):
        SGDOptions(**values)


@pytest.mark.parametrize(
    "values", [{"lr": 0.0}, {"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"weight_decay": -0.1}]
)
def test_values_that_no_optimizer_takes_are_refused(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        AdamOptions(**values)


@pytest.mark.parametrize("build", [optimizers.adamw, optimizers.adam, optimizers.sgd])
@pytest.mark.parametrize(
    ("implementation", "fused", "foreach"),
    [("auto", True, False), ("fused", True, False), ("foreach", False, True), ("loop", False, False)],
)
def test_the_implementation_is_the_one_that_was_asked_for(build, implementation, fused, foreach):
    options = {optimizers.adamw: AdamWOptions, optimizers.adam: AdamOptions, optimizers.sgd: SGDOptions}[
        build
    ]
    group = build(options(), [torch.ones(2, requires_grad=True)], implementation).param_groups[0]
    assert (group["fused"], group["foreach"]) == (fused, foreach)


@pytest.mark.parametrize("build", [(optimizers.adamw, AdamWOptions()), (optimizers.sgd, SGDOptions())])
def test_complex_parameters_are_not_fused(build):
    target, options = build
    params = [torch.ones(2, dtype=torch.complex64, requires_grad=True)]
    assert target(options, params).param_groups[0]["foreach"]
    with pytest.raises(OptionError, match="floating-point"):
        target(options, params, "fused")


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_first_step_that_is_skipped_leaves_fused_momentum_as_if_it_had_not_been(nesterov):
    options = SGDOptions(lr=0.1, momentum=0.9, nesterov=nesterov)
    ours, theirs = (torch.tensor([1.0, -2.0] * 300, requires_grad=True) for _ in range(2))
    skipping, plain = optimizers.sgd(options, [ours], "fused"), optimizers.sgd(options, [theirs], "fused")
    skipping.grad_scale, skipping.found_inf = None, torch.tensor(1.0)
    ours.grad = torch.full_like(ours, float("nan"))
    skipping.step()
    skipping.found_inf = torch.tensor(0.0)
    for _ in range(3):
        for parameter, optimizer in ((ours, skipping), (theirs, plain)):
            optimizer.zero_grad()
            (parameter**2).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_dampened_momentum_is_not_fused():
    """torch's kernel would begin with momentum that nobody wrote if its first step is skipped."""
    options = SGDOptions(momentum=0.5, dampening=0.25)
    params = [torch.ones(2, requires_grad=True)]
    assert optimizers.sgd(options, params).param_groups[0]["foreach"]
    with pytest.raises(OptionError, match="foreach"):
        optimizers.sgd(options, params, "fused")
