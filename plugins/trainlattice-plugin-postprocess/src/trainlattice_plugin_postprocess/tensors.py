"""Functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from trainlattice_plugin_postprocess.options import ChannelOptions, DimOptions, SliceOptions, SoftmaxOptions

Function = Callable[[Tensor], Tensor]


def argmax(options: DimOptions) -> Function:
    def argmax(value: Tensor) -> Tensor:
        return value.argmax(options.dim)

    return argmax


def softmax(options: SoftmaxOptions) -> Function:
    """In float32 at least: bfloat16 probabilities do not add up to one."""

    def softmax(value: Tensor) -> Tensor:
        wide = value if value.element_size() >= 4 else value.float()
        return (wide / options.temperature).softmax(options.dim)

    return softmax


def channel_format(options: ChannelOptions) -> Function:
    """``[B, C, H, W]`` to ``[B, H, W, C]``, or back; a view, of as many further dimensions as there are."""

    def channel_format(value: Tensor) -> Tensor:
        if value.dim() < 3:
            raise ValueError(
                f"a batch of images has at least three dimensions, and this one has {list(value.shape)}"
            )
        return value.movedim(-1, 1) if options.to == "nchw" else value.movedim(1, -1)

    return channel_format


def tensor_slice(options: SliceOptions) -> Function:
    def tensor_slice(value: Tensor) -> Tensor:
        index = [slice(None)] * value.dim()
        index[options.dim] = slice(options.start, options.stop, options.step)
        return value[tuple(index)]

    return tensor_slice
