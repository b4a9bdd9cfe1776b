"""Whole models of transformers and timm with random weights, and the cases that models.py runs: a
model, a type, a batch, inference or a training step."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from programs import DTYPES

Step = Callable[[], Any]
SMALL_BATCH, SMALL_LENGTH = 2, 64


@dataclass(frozen=True)
class Model:
    """How to make a model, what it takes, and the types in which it is run unless one is named."""

    package: str
    make: Callable[[Any, bool], torch.nn.Module]  # of the package and whether it is to be small
    batch: int
    length: int  # tokens in a sequence, or pixels of a side of an image
    tokens: int = 0  # that it knows; 0: it takes images
    inference: tuple[str, ...] = ("fp32", "bf16")
    training: tuple[str, ...] = ("fp32",)


@dataclass(frozen=True)
class Case:
    """One row of the results."""

    model: str
    dtype: str
    batch: int
    length: int
    training: bool

    @property
    def name(self) -> str:
        """As gpt2-fp32-8x512-training."""
        end = "-training" if self.training else ""
        return f"{self.model}-{self.dtype}-{self.batch}x{self.length}{end}"

    @property
    def missing(self) -> str:
        """The package that the case needs and that is not installed; "" if it is."""
        package = MODELS[self.model].package
        return package if importlib.util.find_spec(package) is None else ""


def _gpt2(t: Any, small: bool) -> torch.nn.Module:
    size = {"n_layer": 2, "n_embd": 128, "n_head": 4} if small else {}
    return t.GPT2LMHeadModel(t.GPT2Config(use_cache=False, **size))  # type: ignore[no-any-return]


def _llama(t: Any, small: bool, layers: int) -> torch.nn.Module:
    width = 128 if small else 2048
    config = t.LlamaConfig(
        hidden_size=width, intermediate_size=width * 11 // 4, vocab_size=32000,
        num_hidden_layers=2 if small else layers, num_attention_heads=width // 64, use_cache=False,
    )  # fmt: skip
    return t.LlamaForCausalLM(config)  # type: ignore[no-any-return]


_NARROW = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4}


def _bert(t: Any, small: bool) -> torch.nn.Module:
    return t.BertModel(t.BertConfig(**(_NARROW if small else {})))  # type: ignore[no-any-return]


def _t5(t: Any, small: bool) -> torch.nn.Module:
    size = {"num_layers": 2} if small else {"d_model": 768, "d_ff": 3072, "num_layers": 12}
    return t.T5EncoderModel(t.T5Config(num_heads=12, **size))  # type: ignore[no-any-return]


def _vit(t: Any, small: bool) -> torch.nn.Module:
    size = {**_NARROW, "image_size": SMALL_LENGTH} if small else {}  # else ViT-B/16
    return t.ViTModel(t.ViTConfig(**size))  # type: ignore[no-any-return]


def _resnet50(timm: Any, small: bool) -> torch.nn.Module:
    return timm.create_model("resnet50", pretrained=False)  # type: ignore[no-any-return]


MODELS = {
    "gpt2": Model("transformers", _gpt2, 8, 512, 50257),
    "llama-8-layers": Model(
        "transformers", lambda t, small: _llama(t, small, 8), 4, 512, 32000, ("fp32",), ()
    ),
    "llama-4-layers": Model("transformers", lambda t, small: _llama(t, small, 4), 4, 1024, 32000),
    "bert": Model("transformers", _bert, 32, 128, 30522),
    "t5-encoder": Model("transformers", _t5, 8, 512, 32128),
    "vit-b16": Model("transformers", _vit, 32, 224),
    "resnet50": Model("timm", _resnet50, 32, 224, training=()),
}


def cases(
    dtype: str | None = None,
    batch: int | None = None,
    training: bool | None = None,
    small: bool = False,
) -> Iterator[Case]:
    """The cases of all models: inference, then training. None: the types and batches of MODELS, and
    both."""
    for trained in (False, True):
        if training not in (None, trained):
            continue
        for name, model in MODELS.items():
            types = model.training if trained else model.inference
            sizes = (SMALL_BATCH, SMALL_LENGTH) if small else (model.batch, model.length)
            for one in (dtype,) if dtype and types else types:
                yield Case(name, one, batch or sizes[0], sizes[1], trained)


def step_of(
    case: Case, device: str, small: bool, compiled: Callable[[Any], Any], exact: bool = False
) -> Step:
    """One call, or one training step without its optimizer, of the model as `compiled` makes it.
    The same weights and inputs for the same case; exact: in float64. ImportError: its package is
    missing."""
    made = MODELS[case.model]
    dtype = getattr(torch, DTYPES[case.dtype])
    package = importlib.import_module(made.package)
    torch.manual_seed(0)
    model = made.make(package, small)
    if made.tokens:
        inputs = torch.randint(0, made.tokens, (case.batch, case.length), device=device)
    else:
        shape = (case.batch, 3, case.length, case.length)
        inputs = torch.randn(shape, dtype=dtype, device=device)
        inputs = inputs.double() if exact else inputs
    model = model.to(device, dtype).train(case.training)
    model = model.double() if exact else model
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    run = compiled(model)
    targets: list[torch.Tensor] = []

    def step() -> Any:
        if not case.training:
            with torch.no_grad():
                return run(inputs)[0]
        out = run(inputs)[0]
        # A target, as the square of a normalised output hardly depends on what was normalised.
        if not targets:
            targets.append(torch.randn_like(out, dtype=torch.float32))
        (out.float() - targets[0]).square().mean().backward()
        model.zero_grad(set_to_none=True)
        return out.detach()

    return step
