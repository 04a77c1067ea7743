"""The segmentation models: pictures in, class masks out.

`load_segmenter()` is what the environment calls, and what a model service is given. Every model is a `torch.nn.Module` that
takes uint8 [n, 128, 128, 3] and returns uint8 [n, 128, 128], an element for each class of world.CLASSES.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from world import CLASSES, SIDE

__all__ = ["WEIGHTS", "InProcess", "MaskRCNN", "UNet", "compile_package", "load_segmenter"]

WEIGHTS = Path(__file__).with_name("unet.safetensors")


class UNet(nn.Module):
    """A U-Net (Ronneberger et al., 2015, arXiv:1505.04597) with batch normalisation, some 47,000 parameters.

    Its first layer turns blocks of 4×4 pixels into channels, the last one turns channels into blocks (pixel shuffle, Shi et
    al., 2016, arXiv:1609.05158), so that its largest maps are 32×32. It computes in channels-last order, as pictures come.
    """

    BLOCK = 4

    def __init__(self, widths: tuple[int, int, int] = (16, 24, 32)) -> None:
        super().__init__()
        a, b, c = widths
        self.down1 = nn.Sequential(*_layers(3, a, self.BLOCK, stride=self.BLOCK), *_layers(a, a))
        self.down2 = nn.Sequential(*_layers(a, b), *_layers(b, b))
        self.bottom = nn.Sequential(*_layers(b, c), *_layers(c, c))
        self.up2 = nn.Sequential(*_layers(c + b, b))
        self.up1 = nn.Sequential(*_layers(b + a, a))
        self.head = nn.Conv2d(a, len(CLASSES) * self.BLOCK**2, 1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's annotations lack it

    def logits(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 [n, h, w, 3] to float32 [n, classes, h, w]; h and w are multiples of 16."""
        return functional.pixel_shuffle(self.head(self._features(frames)), self.BLOCK)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """argmax of logits(), a third of whose time it takes: before the pixels are where they belong, a class after the other."""
        features = self._features(frames)
        n, _, h, w = features.shape
        weight, bias = self.head.parameters()
        logits = torch.matmul(weight.flatten(1), features.flatten(2)) + bias[:, None]
        planes = logits.unflatten(1, (len(CLASSES), -1)).unbind(1)
        best, mask = planes[0], torch.zeros_like(planes[0], dtype=torch.uint8)
        for label, plane in enumerate(planes[1:], 1):
            mask = torch.maximum(mask, (plane > best).to(torch.uint8) * label)
            best = torch.maximum(best, plane)
        pixels = mask.view(n, self.BLOCK, self.BLOCK, h, w).permute(0, 3, 1, 4, 2)
        return pixels.reshape(n, h * self.BLOCK, w * self.BLOCK)

    def _features(self, frames: torch.Tensor) -> torch.Tensor:
        fine = self.down1(frames.permute(0, 3, 1, 2).float())  # normalised after the first layer
        middle = self.down2(functional.max_pool2d(fine, 2))
        coarse = self.bottom(functional.max_pool2d(middle, 2))
        middle = self.up2(torch.cat([_twice(coarse), middle], 1))
        features: torch.Tensor = self.up1(torch.cat([_twice(middle), fine], 1))
        return features


class MaskRCNN(nn.Module):
    """torchvision's Mask R-CNN (He et al., 2017, arXiv:1703.06870) behind the same interface.

    Its instances are painted over each other, the surest last; what no instance surer than `threshold` covers is ground.

    Args:
        weights: a state_dict of `maskrcnn_resnet50_fpn(num_classes=5)`; None begins with random ones.

    Raises:
        ImportError: where torchvision is not installed.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor] | None = None, threshold: float = 0.5) -> None:
        super().__init__()
        from torchvision.models.detection import maskrcnn_resnet50_fpn

        self.net = maskrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=len(CLASSES), box_score_thresh=threshold
        )
        if weights is not None:
            self.net.load_state_dict(weights)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        masks = torch.zeros(frames.shape[:3], dtype=torch.uint8, device=frames.device)
        pictures = list(frames.permute(0, 3, 1, 2).float() / 255)
        for mask, found in zip(masks, self.net(pictures), strict=True):
            for i in found["scores"].argsort():
                mask[found["masks"][i, 0] >= 0.5] = found["labels"][i].to(torch.uint8)
        return masks


def load_segmenter(kind: str = "unet", weights: str | Path | None = None) -> nn.Module:
    """A trained model, ready to be called.

    Args:
        kind: "unet" or "maskrcnn".
        weights: a safetensors file; by default the U-Net's that train.py left, and none for Mask R-CNN.
    """
    from safetensors.torch import load_file

    if kind == "unet":
        model: nn.Module = UNet()
        model.load_state_dict(load_file(weights or WEIGHTS))
    elif kind == "maskrcnn":
        model = MaskRCNN(load_file(weights) if weights else None)
    else:
        raise ValueError(f"there is no segmenter {kind!r}; there are 'unet' and 'maskrcnn'")
    return model.eval().requires_grad_(False)


def compile_package(file: str | Path, max_batch: int = 64) -> None:
    """Compiles the U-Net for this machine (AOTInductor, takes half a minute): a file for a model service, which runs it in
    C++."""
    frames = torch.zeros(8, SIDE, SIDE, 3, dtype=torch.uint8)
    rows = torch.export.Dim("rows", min=1, max=max_batch)
    exported = torch.export.export(load_segmenter(), (frames,), dynamic_shapes=({0: rows},))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(file))


class InProcess:
    """A model called as a model service is: one picture in, one mask out, both NumPy arrays. On the GPU that this process sees,
    if there is one."""

    def __init__(self, model: nn.Module) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.to(self._device)

    def __call__(self, frame: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            mask: torch.Tensor = self._model(torch.from_numpy(frame)[None].to(self._device))[0]
        return mask.cpu().numpy()


def _layers(channels: int, width: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    padding = kernel // 2 if stride == 1 else 0
    convolution = nn.Conv2d(channels, width, kernel, stride, padding, bias=False)
    return [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]


def _twice(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")
