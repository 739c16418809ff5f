"""Kinds of components, and the declaration of one component. Plain data: no pydantic, no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

NAME = re.compile(r"[a-z][a-z0-9_]*")
TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")

ALWAYS_RESERVED = frozenset({"name", "as"})
"""Keys that core reads beside the options of a component of any kind."""

CORE_SECTION_NAMES = frozenset({"checkpoint", "experiment", "extends", "plugins", "trainer"})
"""Top-level keys that core itself reads: no kind can have one as its section."""


@dataclass(frozen=True)
class Kind:
    """A kind of component.

    :param name: such as ``model``.
    :param section: the top-level key under which a configuration names components of this kind.
    :param form: ``one`` component in the section, or a ``list`` of them.
    :param arguments: what a target of this kind may ask for, of ``options``, ``seed`` and ``data`` for kinds
        that plugins bring: it is called by keyword with those of
        these that its signature names.
    :param settings: ``"module:Class"`` of the Options with the keys that core reads beside the
        component's own (``batch_size`` of a dataset).
    :param reserved: further keys that no options class of this kind may declare.
    :param several: a key below which the section may hold a list of components instead of one.
    :param every_mode: whether the section may stand in a configuration of any mode.
    """

    name: str
    section: str
    form: Literal["one", "list"] = "one"
    arguments: tuple[str, ...] = ("options", "seed")
    settings: str | None = None
    reserved: frozenset[str] = frozenset()
    every_mode: bool = False
    summary: str = ""
    several: str | None = None

    @property
    def with_article(self) -> str:
        """``a model``, ``an optimizer``"""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


@dataclass(frozen=True)
class Component:
    """The declaration of one component: everything a listing needs, and where the rest is found.

    :param kind: such as ``model``.
    :param name: lower-case letters, digits and underscores; what the YAML says.
    :param target: ``"package.module:attribute"``, a class or function that builds the component. It is
        imported only by a run that uses it.
    :param options: ``"package.options:Class"``, an :class:`~trainlattice.contracts.options.Options`
        subclass; None for a component without options. Its module must not import torch.
    :param summary: one line.
    :param default_for: the section that this component fills where the YAML is silent.
    :param deprecated: what to use instead, and since when; shown as a warning on use.
    :param member_option: the option that the name may give after a slash. With ``"class"``,
        ``name: torchmetrics/KLDivergence`` means ``{name: torchmetrics, class: KLDivergence}``.
    """

    kind: str
    name: str
    target: str
    options: str | None = None
    summary: str = ""
    default_for: str | None = None
    deprecated: str | None = None
    member_option: str | None = None

    def problem(self) -> str | None:
        """What is wrong with this declaration by itself, or None."""
        for label, value in (("kind", self.kind), ("name", self.name), ("target", self.target)):
            if not isinstance(value, str):
                return f"component {label} {value!r} is not a string"
        for label, text in (
            ("summary", self.summary),
            ("deprecated", self.deprecated or ""),
            ("default_for", self.default_for or ""),
            ("member_option", self.member_option or ""),
        ):
            if not isinstance(text, str):
                return f"{self.kind} {self.name!r}: {label} {text!r} is not a string"
            if text and not text.isprintable():
                return f"{self.kind} {self.name!r}: {label} {text!r} is not one line of visible text"
        what = f"{self.kind} {self.name!r}"
        if not NAME.fullmatch(self.name):
            return f"{what}: a name has lower-case letters, digits and underscores, and starts with a letter"
        if not TARGET.fullmatch(self.target):
            return f"{what}: target {self.target!r} is not of the form 'package.module:attribute'"
        if self.options is not None and not (
            isinstance(self.options, str) and TARGET.fullmatch(self.options)
        ):
            return f"{what}: options {self.options!r} is not of the form 'package.options:Class'"
        return None


CORE_KINDS = (
    Kind("mode", "mode", summary="how a batch becomes an update", arguments=("options", "parts")),
    Kind(
        "model",
        "model",
        summary="a torch.nn.Module",
        arguments=("options", "data"),
        settings="trainlattice.contracts.settings:ModelSettings",
    ),
    Kind(
        "dataset",
        "dataset",
        summary="where batches come from",
        arguments=("options", "seed"),
        settings="trainlattice.contracts.settings:DatasetSettings",
        reserved=frozenset(
            {"batch_size", "num_workers", "start_method", "drop_last", "prefetch_factor", "shuffle"}
        ),
    ),
    Kind(
        "loss",
        "loss",
        summary="what is minimised",
        arguments=("options", "data"),
        settings="trainlattice.contracts.settings:LossSettings",
        reserved=frozenset({"components"}),
        several="components",
    ),
    Kind(
        "optimizer",
        "optimizer",
        summary="a torch.optim.Optimizer",
        arguments=("options", "params", "implementation"),
        settings="trainlattice.contracts.settings:OptimizerSettings",
    ),
    Kind(
        "scheduler",
        "scheduler",
        summary="a torch.optim.lr_scheduler.LRScheduler, stepped once per optimizer step",
        arguments=("options", "optimizer", "total_steps"),
    ),
    Kind(
        "postprocessor",
        "postprocess",
        form="list",
        summary="makes further values of a batch for losses, metrics and callbacks",
        arguments=("options", "data", "models"),
        settings="trainlattice.contracts.settings:PostprocessSettings",
    ),
    Kind(
        "metric",
        "metrics",
        form="list",
        summary="measures predictions over a whole phase",
        arguments=("options", "data"),
        settings="trainlattice.contracts.settings:MetricSettings",
        every_mode=True,
    ),
    Kind(
        "tracker",
        "trackers",
        form="list",
        summary="takes the records of a run elsewhere, beside training",
        arguments=("options",),
        settings="trainlattice.contracts.settings:TrackerSettings",
        every_mode=True,
    ),
    Kind(
        "callback",
        "callbacks",
        form="list",
        summary="observes the run",
        arguments=("options", "parts"),
        every_mode=True,
    ),
)
