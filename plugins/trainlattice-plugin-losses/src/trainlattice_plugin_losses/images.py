"""Losses of images ``[B, C, H, W]``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainlattice_plugin_losses.options import SSIMOptions
from trainlattice_plugin_losses.precision import at_least_float32, without_autocast
from trainlattice_plugin_losses.shapes import require_same_shape


class SSIM(nn.Module):
    """1 - SSIM (Wang et al. 2004, IEEE TIP 13(4)): means, variances and covariance under a gaussian window,

    ``SSIM = (2 mx my + c1) (2 sxy + c2) / ((mx^2 + my^2 + c1) (sx^2 + sy^2 + c2))``, ``ci = (ki data_range)^2``,

    averaged over the channels and pixels of an image; without padding, over the places where a window lies inside.
    """

    task = "regression"
    window: Tensor

    def __init__(self, options: SSIMOptions) -> None:
        super().__init__()
        self.reduction = options.reduction
        self.c1 = (options.k1 * options.data_range) ** 2
        self.c2 = (options.k2 * options.data_range) ** 2
        self.margin = options.window_size // 2 if options.padding == "reflect" else 0
        self.smallest = options.window_size - self.margin
        distance = torch.arange(options.window_size, dtype=torch.float64) - options.window_size // 2
        window = torch.exp(-0.5 * (distance / options.sigma) ** 2)
        self.register_buffer("window", window / window.sum(), persistent=False)

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        require_same_shape(pred, target)
        if pred.dim() != 4 or min(pred.shape[2:]) < self.smallest:
            raise ValueError(
                f"images have the shape {list(pred.shape)}: a window_size of {len(self.window)} needs [B, C, H, W] "
                f"with H and W at least {self.smallest}"
            )
        pred = at_least_float32(pred)
        with without_autocast(pred.device):  # half precision would round away what the variances differ by
            losses = 1.0 - self._similarity(pred, target.to(pred.dtype))
        return losses.sum() if self.reduction == "sum" else losses.mean()

    def num_terms(self, target: Tensor) -> int:
        """Images."""
        return len(target)

    def _similarity(self, x: Tensor, y: Tensor) -> Tensor:
        """Of each image, ``[B]``."""
        x, y = (_reflected(_reflected(image, self.margin, 2), self.margin, 3) for image in (x, y))
        mx, my, mxx, myy, mxy = self._windowed(torch.cat([x, y, x * x, y * y, x * y], 1)).chunk(5, 1)
        vx, vy = (mxx - mx * mx).clamp_min(0.0), (myy - my * my).clamp_min(0.0)
        luminance = (2.0 * mx * my + self.c1) / (mx * mx + my * my + self.c1)
        structure = (2.0 * (mxy - mx * my) + self.c2) / (vx + vy + self.c2)
        return (luminance * structure).flatten(1).mean(1)

    def _windowed(self, maps: Tensor) -> Tensor:
        """Means under the window, ``[B, K, H, W]`` to ``[B, K, H - size + 1, W - size + 1]``.

        One group for each map: on CUDA, contiguous float32 then goes through torch's own kernels. Those of cuDNN
        compute in TF32 by default, whose ten bits are too few for a difference of squares.
        """
        count = maps.shape[1]
        window = self.window.to(maps.device, maps.dtype)
        rows, columns = (window.view(1, 1, *shape).repeat(count, 1, 1, 1) for shape in ((-1, 1), (1, -1)))
        maps = functional.conv2d(maps.contiguous(), rows, groups=count)
        return functional.conv2d(maps, columns, groups=count)


def _reflected(images: Tensor, margin: int, dim: int) -> Tensor:
    """Continued to both sides by what is mirrored at the outermost pixel. The gradient of torch's own padding is
    added up on CUDA in an order that changes from run to run."""
    if not margin:
        return images
    size = images.shape[dim]
    before = images.narrow(dim, 1, margin).flip(dim)
    after = images.narrow(dim, size - margin - 1, margin).flip(dim)
    return torch.cat([before, images, after], dim)
