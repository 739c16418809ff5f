"""A plugin with options of every form, torch-free: its components are named in tests and never built."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from trainlattice.contracts.options import LocalPath, Options, PositiveInt
from trainlattice.contracts.records import DatasetContract, LossContract, ModeContract, ModelContract
from trainlattice.plugin import Component, Kind, hookimpl
from trainlattice.plugin.registry import Registry


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Layer(Options):
    width: PositiveInt = Field(description="Values out.")
    bias: bool = Field(True, description="Whether to add one.")


class Cosine(Options):
    kind: Literal["cosine"]
    steps: PositiveInt


class Steps(Options):
    kind: Literal["steps"]
    at: tuple[PositiveInt, ...]


class FamilyOptions(Options):
    member: Literal["one", "other"] = Field(description="Which of the family.")
    size: int = Field(1, description="A number.")

    def record_name(self) -> str:
        return f"{self.member}_of_{self.size}"


class OddOptions(Options):
    """Everything that a configuration can hold."""

    text: str = Field("", description="Any text.")
    maybe: str | None = Field(None, description="Text or nothing.")
    number: float = Field(0.5, description="Any number.")
    count: int = Field(0, description="Any integer.")
    flag: bool = Field(False, description="A switch.")
    either: int | str = Field(0, description="An integer or text.")
    choice: Literal["alpha", "beta", "1e3"] = Field("alpha", description="One of three.")
    color: Color = Field(Color.RED, description="One of two.")
    words: tuple[str, ...] = Field((), description="Texts.")
    numbers: list[float] = Field([], description="Numbers.")
    pair: tuple[int, str] = Field((1, "a"), description="An integer and a text.")
    table: dict[str, float | str] = Field({}, description="Named numbers or texts.")
    layers: tuple[Layer, ...] = Field((), description="A list of options.")
    groups: dict[str, Layer] = Field({}, description="Named options.")
    inner: Layer | None = Field(None, description="Options inside options.")
    schedule: Annotated[Cosine | Steps, Field(discriminator="kind")] | None = Field(
        None, description="One of two kinds of options."
    )
    day: date = Field(date(2024, 2, 29), description="A day.")
    place: LocalPath = Field(".", description="A path.")
    lambda_: float = Field(0.0, alias="lambda", description="An option that is a word of Python.")


class OneOrSeveralOptions(Options):
    """Text, or options by name."""

    several: str | Annotated[dict[Annotated[str, Field(pattern="^[a-z]+$")], Layer], Field(min_length=1)] = (
        "none"
    )


class DemandingOptions(Options):
    """Options without defaults, whose values are narrow."""

    pair: tuple[PositiveInt, str]
    level: Annotated[int, Field(ge=-3, le=-1)]
    ratio: Annotated[float, Field(gt=0.0, lt=0.25)]
    code: Annotated[str, Field(min_length=8)]
    fixed: Literal[7]
    color: Color
    inner: Layer
    layers: Annotated[tuple[Layer, ...], Field(min_length=2)]
    table: dict[str, int]
    root: LocalPath
    tag: Annotated[str, Field(pattern=r"^v\d+$")] = Field(examples=["v1"])


class WrongDefaultOptions(Options):
    width: int = Field("eight")


class ShapedOptions(Options):
    shape: tuple[PositiveInt, ...] | None = None
    size: PositiveInt | None = None
    outputs: PositiveInt | None = None
    channels: PositiveInt | None = None
    divisor: PositiveInt | None = None

    def contract(self) -> ModelContract:
        if self.channels is not None:
            return ModelContract(
                num_outputs=self.outputs,
                in_channels=self.channels,
                input_option="channels",
                size_divisor=self.divisor,
                size_divisor_option="divisor",
            )
        option = "shape" if self.shape else "size"
        return ModelContract(self.shape, self.size, self.outputs, "outputs", option)


class DataOptions(Options):
    shape: tuple[PositiveInt, ...] | None = None
    task: Literal["classification", "regression"] | None = None
    outputs: PositiveInt | None = None

    def contract(self) -> DatasetContract:
        return DatasetContract(self.shape, self.task, self.outputs)


class OpenLossOptions(Options):
    def contract(self) -> LossContract:
        return LossContract()


class PairModeOptions(Options):
    """A mode with two models by role, without loss and scheduler."""

    def contract(self) -> ModeContract:
        return ModeContract(
            required=("model", "dataset"),
            optional=("optimizer",),
            roles={"model": ("first", "second")},
        )


def _component(kind: str, name: str, options: str | None, **more: str) -> Component:
    reference = f"support.odd:{options}" if options else None
    return Component(kind, name, target="support.odd:never_built", options=reference, **more)


@hookimpl
def trainlattice_kinds() -> list[Kind]:
    return [Kind("exporter", "export", summary="writes the model in another format")]


@hookimpl
def trainlattice_components() -> list[Component]:
    return [
        _component("model", "odd", "OddOptions"),
        _component("model", "one_or_several", "OneOrSeveralOptions"),
        _component("model", "demanding", "DemandingOptions"),
        _component("model", "any", None),
        _component("model", "wrong_default", "WrongDefaultOptions"),
        _component("model", "shaped", "ShapedOptions"),
        _component("model", "old", None, deprecated="use any, since 0.1"),
        _component("dataset", "data", "DataOptions"),
        _component("loss", "open", "OpenLossOptions"),
        _component("mode", "pair", "PairModeOptions"),
        _component("callback", "watcher", "Layer"),
        _component("metric", "family", "FamilyOptions", member_option="member"),
        _component("exporter", "text", "Layer"),
    ]


def never_built() -> None:
    raise AssertionError("a test built this component")


def odd_registry() -> Registry:
    """Everything installed, and this plugin under the name ``odd``."""
    import support.odd

    registry = Registry.installed()
    plugin = registry.add_module(support.odd, plugin_id="odd")
    assert plugin.broken is None, plugin.broken
    return registry
