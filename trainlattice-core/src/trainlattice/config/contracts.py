"""Contracts between components, as far as their options state them. The rest is compared when built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from trainlattice.config.resolved import ResolvedComponent, Section
from trainlattice.contracts.records import DatasetContract, LossContract, ModeContract, ModelContract
from trainlattice.contracts.settings import (
    LossSettings,
    MetricSettings,
    ModelSettings,
    PostprocessSettings,
    TrainerSettings,
)
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.hints import did_you_mean
from trainlattice.diagnostics.source import Mark

Locate = Callable[[nodes.Path], Mark | None]


def contract_problems(
    sections: Mapping[str, Section], trainer: TrainerSettings | None, locate: Locate
) -> list[Diagnostic]:
    """Every pair of sections that is valid by itself and does not fit together."""
    model, dataset = _single(sections, "model"), _single(sections, "dataset")
    losses = _all(sections, "loss")
    metrics = _all(sections, "metrics")
    # A metric called accuracy takes the place of the mode's own.
    taken = {"loss", "accuracy"} if len(losses) > 1 else {"loss"}
    problems = _outputs_twice(_all(sections, "postprocess"), locate)
    problems += _written_in_other_phases(_all(sections, "postprocess"), metrics, locate)
    problems += _names_twice((*(losses if len(losses) > 1 else ()), *metrics), taken, locate)
    problems += _names_twice(_all(sections, "trackers"), set(), locate)
    model_contract = model.contract if model else None
    dataset_contract = dataset.contract if dataset else None
    loss_contracts = [loss.contract for loss in losses]
    if model and dataset and isinstance(model_contract, ModelContract):
        if isinstance(dataset_contract, DatasetContract):
            problems += model_problems(model, model_contract, dataset.name, dataset_contract, losses, locate)
    for loss, loss_contract in zip(losses, loss_contracts, strict=True):
        if (
            isinstance(loss_contract, LossContract)
            and dataset
            and isinstance(dataset_contract, DatasetContract)
        ):
            problems += task_problems(loss, loss_contract, dataset.name, dataset_contract, locate)
    if trainer is not None:
        classifies = [not isinstance(c, LossContract) or c.task == "classification" for c in loss_contracts]
        task = "regression" if losses and not any(classifies) else None
        mode = _single(sections, "mode")
        mode_contract = mode.contract if mode else None
        measured = mode_contract.metrics if isinstance(mode_contract, ModeContract) else None
        if measured is not None and len(losses) > 1:
            measured = (*measured, *(own_name(loss) for loss in losses))
        if measured is not None:
            measured = (*measured, *(own_name(m) for m in metrics if "val" in _phases(m)))
        problems += _trainer_problems(trainer, task, measured, locate)
    return problems


def own_name(component: ResolvedComponent) -> str:
    """Under which one of several losses, or a metric, is recorded; what a tracker is called."""
    label: str | None = getattr(component.settings, "label", None)
    return label or component.options.record_name() or component.registered.component.name


def _phases(metric: ResolvedComponent) -> tuple[str, ...]:
    return metric.settings.phases if isinstance(metric.settings, MetricSettings) else ()


def _names_twice(
    components: Sequence[ResolvedComponent], taken: set[str], locate: Locate
) -> list[Diagnostic]:
    problems, seen = [], set(taken)
    for component in components:
        name = own_name(component)
        if name in seen:
            path = (*component.path, "as")
            kind = component.registered.kind.name
            message = f"the name {name!r} is taken: give this {kind} another one with the key 'as'"
            problems.append(Diagnostic("conflict", message, locate(path), nodes.dotted(path)))
        seen.add(name)
    return problems


def _written_in_other_phases(
    processors: Sequence[ResolvedComponent], metrics: Sequence[ResolvedComponent], locate: Locate
) -> list[Diagnostic]:
    """A metric that reads in one phase what is post-processed in others only."""
    written: dict[str, set[str]] = {}
    for component in processors:
        settings = component.settings
        if not isinstance(settings, PostprocessSettings) or settings.unfurl:
            continue
        own = component.registered.component.name
        for key in (settings.outputs or {"": settings.output or own}).values():
            written.setdefault(f"post_processed/{key}", set()).update(settings.phases)
    problems = []
    for metric in metrics:
        inputs = metric.settings.inputs if isinstance(metric.settings, MetricSettings) else {}
        for argument, key in inputs.items():
            absent = [phase for phase in _phases(metric) if key in written and phase not in written[key]]
            if absent:
                path = (*metric.path, "inputs", argument)
                message = (
                    f"{key!r} is not written in phase {' and '.join(absent)}, where metric {own_name(metric)!r} "
                    f"reads it: only in {', '.join(sorted(written[key]))}; change the phases of one of the two"
                )
                problems.append(Diagnostic("contract", message, locate(path), nodes.dotted(path)))
    return problems


def _outputs_twice(components: Sequence[ResolvedComponent], locate: Locate) -> list[Diagnostic]:
    """Two post-processors of one phase that write the same key."""
    problems: list[Diagnostic] = []
    seen: dict[tuple[str, str], str] = {}
    for component in components:
        settings = component.settings
        if not isinstance(settings, PostprocessSettings) or settings.unfurl:
            continue
        own = component.registered.component.name
        option = "outputs" if settings.outputs is not None else "output"
        for key in (settings.outputs or {"": settings.output or own}).values():
            other = next((seen[phase, key] for phase in settings.phases if (phase, key) in seen), None)
            if other is not None:
                path = (*component.path, option)
                message = f"the key 'post_processed/{key}' is written by {other!r} already"
                problems.append(Diagnostic("conflict", message, locate(path), nodes.dotted(path)))
            seen |= {(phase, key): own for phase in settings.phases}
    return problems


def _all(sections: Mapping[str, Section], name: str) -> tuple[ResolvedComponent, ...]:
    """The components of a section that names one or several."""
    found = sections.get(name)
    if isinstance(found, tuple):
        return found
    return (found,) if isinstance(found, ResolvedComponent) else ()


def _single(sections: Mapping[str, Section], name: str) -> ResolvedComponent | None:
    found = sections.get(name)
    return found if isinstance(found, ResolvedComponent) else None


def model_problems(
    model: ResolvedComponent,
    ours: ModelContract,
    dataset: str,
    theirs: DatasetContract,
    losses: Sequence[ResolvedComponent],
    locate: Locate,
) -> list[Diagnostic]:
    """Input shape and output width of a model against a dataset's."""
    problems: list[Diagnostic] = []

    def problem(option: str, message: str, note: str) -> None:
        path = (*model.path, option)
        problems.append(Diagnostic("contract", message, locate(path), nodes.dotted(path), notes=(note,)))

    if theirs.input_shape is not None and _takes_the_input(model):
        _input_problems(model, ours, dataset, theirs.input_shape, problem)
    if None in (ours.num_outputs, theirs.num_outputs) or ours.num_outputs == theirs.num_outputs:
        return problems
    if _predicts_the_target(losses) and not _one_for_yes_or_no(ours, theirs, losses):
        what = "classes" if theirs.task == "classification" else "outputs"
        problem(
            ours.num_outputs_option,
            f"model {model.name!r} has {ours.num_outputs} outputs, "
            f"dataset {dataset!r} declares {theirs.num_outputs} {what}",
            f"set {model.path[0]}.{ours.num_outputs_option} to {theirs.num_outputs}",
        )
    return problems


def _input_problems(
    model: ResolvedComponent,
    ours: ModelContract,
    dataset: str,
    shape: tuple[int, ...],
    problem: Callable[[str, str, str], None],
) -> None:
    size = prod(shape)
    expected = ours.input_shape
    if expected is not None:
        if tuple(expected) != tuple(shape):
            option = ours.input_option or "input_shape"
            problem(
                option,
                f"model {model.name!r} takes samples of shape {_shape(expected)}, "
                f"dataset {dataset!r} yields {_shape(shape)}",
                f"set {model.path[0]}.{option} to {_shape(shape)}",
            )
    elif ours.input_dim is not None:
        if ours.input_dim != size:
            product = f" = {'*'.join(map(str, shape))}" if len(shape) > 1 else ""
            option = ours.input_option or "input_dim"
            problem(
                option,
                f"model {model.name!r} takes {ours.input_dim} values per sample, "
                f"dataset {dataset!r} yields {size}{product}",
                f"set {model.path[0]}.{option} to {size}",
            )
    elif ours.in_channels is not None:
        if ours.in_channels != shape[0]:
            option = ours.input_option or "in_channels"
            problem(
                option,
                f"model {model.name!r} takes samples of {ours.in_channels} channels, "
                f"dataset {dataset!r} yields {_shape(shape)}",
                f"set {model.path[0]}.{option} to {shape[0]}",
            )
        if ours.size_divisor is not None and any(extent % ours.size_divisor for extent in shape[1:]):
            problem(
                ours.size_divisor_option,
                f"model {model.name!r} takes samples whose sizes are multiples of {ours.size_divisor}, "
                f"dataset {dataset!r} yields {_shape(shape)}",
                f"change {model.path[0]}.{ours.size_divisor_option} or the size of the samples",
            )


def _takes_the_input(model: ResolvedComponent) -> bool:
    """Whether its one input is the whole sample, of which the dataset states the shape."""
    inputs = model.settings.inputs if isinstance(model.settings, ModelSettings) else None
    return inputs is None or list(inputs.values()) == ["input"]


def _predicts_the_target(losses: Sequence[ResolvedComponent]) -> bool:
    """Whether any loss compares what the model returns with the dataset's own target. An autoencoder has as many
    outputs as inputs, whatever the classes."""
    settings = [loss.settings for loss in losses]
    return not losses or any(
        not isinstance(s, LossSettings) or (s.pred_key, s.target_key) == ("pred", "target") for s in settings
    )


def _one_for_yes_or_no(
    ours: ModelContract, theirs: DatasetContract, losses: Sequence[ResolvedComponent]
) -> bool:
    """One output is enough for two classes, unless a loss says that it wants an output for each."""
    if (ours.num_outputs, theirs.num_outputs, theirs.task) != (1, 2, "classification") or not losses:
        return False
    contracts = [loss.contract for loss in losses]
    return not any(isinstance(c, LossContract) and c.task == "classification" for c in contracts)


def task_problems(
    loss: ResolvedComponent, ours: LossContract, dataset: str, theirs: DatasetContract, locate: Locate
) -> list[Diagnostic]:
    """The task of a loss against a dataset's, if it takes the dataset's own target."""
    if isinstance(loss.settings, LossSettings) and loss.settings.target_key != "target":
        return []
    if None in (ours.task, theirs.task) or ours.task == theirs.task:
        return []
    advice = f"name a loss for {theirs.task}"
    if locate(loss.path) is None:
        advice = f"no loss is given, so the default applies: {advice}"
    return [
        Diagnostic(
            "contract",
            f"loss {loss.name!r} is for {ours.task}, dataset {dataset!r} is for {theirs.task}",
            locate((*loss.path, "name")) or locate(("dataset", "name")),
            nodes.dotted((*loss.path, "name")),
            notes=(advice,),
        )
    ]


def _trainer_problems(
    trainer: TrainerSettings, task: str | None, measured: tuple[str, ...] | None, locate: Locate
) -> list[Diagnostic]:
    problems = []

    def problem(option: str, message: str, suggestion: str | None = None) -> None:
        path = ("trainer", option)
        problems.append(
            Diagnostic("contract", message, locate(path), nodes.dotted(path), suggestion=suggestion)
        )

    metrics = [f"val_{name}" for name in measured or () if task != "regression" or name != "accuracy"]
    # A metric with several values has names that begin with its own.
    if measured is not None and not any(
        trainer.monitor == name or trainer.monitor.startswith(f"{name}_") for name in metrics
    ):
        reason = " with a regression loss" if task == "regression" else ""
        problem(
            "monitor",
            f"{trainer.monitor!r} is no metric of this run{reason}; metrics: {', '.join(metrics)}",
            did_you_mean(trainer.monitor, metrics),
        )
    if trainer.precision == "fp16" and trainer.device == "cpu":
        problem("precision", "fp16 needs a CUDA device, and trainer.device is cpu", "did you mean 'bf16'?")
    return problems


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
