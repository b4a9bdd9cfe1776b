"""Three small models with random weights, in the styles that people deploy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A pre-norm transformer block: causal attention, then a GELU feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        shape = (batch, time, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return x


class GPT(nn.Module):
    """Tokens [batch, time] (int64) to logits [batch, time, vocabulary]; with targets, the loss."""

    def __init__(self, vocabulary: int, time: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(time, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Residual(nn.Module):
    """Two 3x3 convolutions with BatchNorm around a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class ResNet(nn.Module):
    """Images [batch, 3, height, width] to class scores; with targets, the mean cross-entropy."""

    def __init__(self, channels: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(*(Residual(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor, targets: Tensor | None = None) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(images))), 3, stride=2, padding=1)
        x = F.avg_pool2d(self.blocks(x), 2)
        scores = self.head(x.mean(dim=(2, 3)))
        return scores if targets is None else F.cross_entropy(scores, targets)


class Mixer(nn.Module):
    """A sequence mixer: softmax-weighted values, RMSNorm and a running sum over time, per layer."""

    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.values = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        for norm, gate, value in zip(self.norms, self.gates, self.values, strict=True):
            y = norm(x)
            weights = torch.softmax(gate(y), dim=-1)
            x = x + torch.cumsum(weights * value(y), dim=1)
        scores: Tensor = self.head(x)
        if targets is None:
            return scores
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Example:
    """A model, inputs for inference, and inputs with targets for one training step."""

    name: str
    model: nn.Module
    inference: tuple[Tensor, ...]
    training: tuple[Tensor, ...]


def gpt(device: str) -> Example:
    """The transformer; larger on a GPU, where small sizes would only measure launches."""
    big = device == "cuda"
    vocabulary, time, width = (8192, 512, 1024) if big else (2048, 128, 256)
    batch, heads, layers = (4, 16, 4) if big else (4, 4, 2)
    torch.manual_seed(0)
    model = GPT(vocabulary, time, width, heads, layers).to(device)
    tokens = torch.randint(vocabulary, (batch, time), device=device)
    targets = torch.randint(vocabulary, (batch, time), device=device)
    return Example("gpt", model, (tokens,), (tokens, targets))


def resnet(device: str) -> Example:
    """The convolutional network."""
    big = device == "cuda"
    batch, size, channels = (32, 160, 64) if big else (8, 96, 32)
    torch.manual_seed(1)
    model = ResNet(channels, blocks=4 if big else 1, classes=1000 if big else 100).to(device)
    images = torch.randn(batch, 3, size, size, device=device)
    targets = torch.randint(100, (batch,), device=device)
    return Example("resnet", model, (images,), (images, targets))


def mixer(device: str) -> Example:
    """The sequence mixer."""
    big = device == "cuda"
    batch, time, width = (16, 512, 1024) if big else (4, 512, 256)
    torch.manual_seed(2)
    model = Mixer(width, layers=2, classes=1000).to(device)
    x = torch.randn(batch, time, width, device=device)
    targets = torch.randint(1000, (batch, time), device=device)
    return Example("mixer", model, (x,), (x, targets))


EXAMPLES: dict[str, Callable[[str], Example]] = {"gpt": gpt, "resnet": resnet, "mixer": mixer}
