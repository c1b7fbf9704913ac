"""Muon: momentum whose matrix updates are orthogonalized, which learns faster than Adam on small networks."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Newton-Schulz iteration on a stack of matrices: their singular values move close to one."""
    a, b, c = _COEFFICIENTS
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon:
    """The optimizer of all matrices inside the blocks."""

    def __init__(self, weights: list[torch.nn.Parameter], momentum: float = 0.95) -> None:
        self.momentum = momentum
        self.groups: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for weight in weights:
            self.groups[weight.shape].append(weight)
        self.moments = [torch.zeros(len(group), *shape) for shape, group in self.groups.items()]

    @torch.no_grad()
    def step(self, rate: float, decay: float) -> None:
        for moment, group in zip(self.moments, self.groups.values(), strict=True):
            gradients = torch.stack([w.grad for w in group if w.grad is not None])
            if moment.device != gradients.device:
                moment.data = moment.data.to(gradients.device)
            moment.lerp_(gradients, 1 - self.momentum)
            update = orthogonalize(gradients.lerp_(moment, self.momentum))
            rows, columns = update.shape[-2:]
            scale = rate * max(1.0, rows / columns) ** 0.5
            for weight, change in zip(group, update, strict=True):
                weight.mul_(1 - rate * decay).add_(change, alpha=-scale)

    def state(self) -> list[Tensor]:
        return self.moments

    def load(self, moments: list[Tensor]) -> None:
        self.moments = moments
