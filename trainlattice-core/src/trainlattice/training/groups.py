"""Parameter groups: which parameters an optimizer treats with options of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.optim import Optimizer

NORMS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    *((nn.RMSNorm,) if hasattr(nn, "RMSNorm") else ()),
)
KINDS = ("bias", "norm", "embedding", "matrix")
REST = "rest"


@dataclass(frozen=True)
class NamedParameter:
    """A parameter under its name, with the module that owns it."""

    name: str
    parameter: nn.Parameter
    owner: nn.Module

    @property
    def kind(self) -> str:
        """One of KINDS, or an empty string: a parameter is of one kind at most. A ``norm`` is every parameter of a
        normalisation layer, a ``bias`` the bias of any other; an ``embedding`` the table of one, a ``matrix`` any
        other parameter of two or more dimensions."""
        if isinstance(self.owner, NORMS):
            return "norm"
        if isinstance(self.owner, (nn.Embedding, nn.EmbeddingBag)):
            return "embedding"
        if self.name.rpartition(".")[2] == "bias":
            return "bias"
        return "matrix" if self.parameter.dim() >= 2 else ""

    def matches(self, wanted: str) -> bool:
        """By kind, or by a pattern of its name as in file names (``blocks.*.weight``)."""
        return self.kind == wanted if wanted in KINDS else fnmatchcase(self.name, wanted)


def named_parameters(owners: Mapping[str, nn.Module], *, frozen: bool = False) -> list[NamedParameter]:
    """Those that are trained, each once; where several modules have parameters, with the module's name before
    theirs.

    :param frozen: those too that are not trained.
    """
    return [held for held in _named(owners) if frozen or held.parameter.requires_grad]


def _named(owners: Mapping[str, nn.Module]) -> Iterator[NamedParameter]:
    seen: set[int] = set()
    several = sum(any(True for _ in module.parameters()) for module in owners.values()) > 1
    for prefix, module in owners.items():
        for path, owner in module.named_modules():
            for name, parameter in owner.named_parameters(recurse=False):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    parts = (prefix if several else "", path, name)
                    yield NamedParameter(".".join(filter(None, parts)), parameter, owner)


class GroupingError(ValueError):
    """Parameters that are in no group, in two, or a group without any.

    :param group: the index of the group at fault; None if a parameter is in none.
    """

    def __init__(self, message: str, group: int | None) -> None:
        super().__init__(message)
        self.group = group


def grouped(
    parameters: Sequence[NamedParameter], wanted: Sequence[Sequence[str]]
) -> list[list[nn.Parameter]]:
    """The parameters of each group.

    :param wanted: of each group, kinds and patterns; ``rest`` is what no other group has.
    :raises GroupingError: unless each parameter is in exactly one group, and each group has one.
    """
    found: list[list[nn.Parameter]] = [[] for _ in wanted]
    place: dict[str, int] = {}
    for number, names in enumerate(wanted):
        for held in parameters:
            if not any(name != REST and held.matches(name) for name in names):
                continue
            if held.name in place:
                raise GroupingError(
                    f"the parameter {held.name!r} is in group {place[held.name]} already", number
                )
            place[held.name] = number
    rest = [number for number, names in enumerate(wanted) if REST in names]
    if len(rest) > 1:
        raise GroupingError("another group has the rest already", rest[1])
    left = [held.name for held in parameters if held.name not in place]
    if left and not rest:
        shown = ", ".join(map(repr, left[:3])) + f" and {len(left) - 3} more" * (len(left) > 3)
        raise GroupingError(f"no group has {shown}; a last group with params: rest takes what is left", None)
    for held in parameters:
        found[place.get(held.name, rest[0] if rest else 0)].append(held.parameter)
    for number, group in enumerate(found):
        if not group:
            names = ", ".join(held.name for held in parameters[:5])
            raise GroupingError(f"no parameter is in this group; parameters: {names}, ...", number)
    return found


def regroup(optimizer: Optimizer, groups: Sequence[tuple[list[nn.Parameter], Mapping[str, Any]]]) -> None:
    """Splits the one group of an optimizer into several, each with options of its own.

    :raises KeyError: for an option that the optimizer has not for each group.
    """
    (whole,) = optimizer.param_groups
    for _, options in groups:
        for name in options:
            if name not in whole:
                raise KeyError(name)
    optimizer.param_groups[:] = [{**whole, "params": members, **options} for members, options in groups]
