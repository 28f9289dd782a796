"""A user's own torch module as a model."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from evergraph.errors import InputError
from evergraph.nn.base import Batch, Draw, Model, Noise, Parameters, check_settings
from evergraph.nn.ops import linear
from evergraph.nn.sage import GraphSAGE
from evergraph.nn.sparse import SparseMatrix

__all__ = ["Custom", "as_model"]

_MODULE, _BUFFER = "module.", "buffer."
_FACTORY = "a function of the number of features that makes the module"


@dataclass(frozen=True)
class Custom(Model):
    """A module in the manner of PyTorch Geometric below a linear output layer, which grows with the classes.

    The module is called as ``module(x, edge_index)``, the edges in both directions and without self-loops, and returns
    a vector for each vertex. Like all models this one holds no weights: the module says how to draw them and how to
    compute with them. It must not keep anything of a graph, and must update its buffers in place.

    Features that grow over time need ``project`` or a function that makes the module. With the latter, every axis of a
    parameter that runs over features must have them in order and once: on growth the old values are laid over the
    fresh ones from the first place on. `carry_over` refuses a parameter that shrinks; an axis in another order it
    cannot notice.

    Parameters
    ----------
    module
        A module, or a function (or class) that makes one for a number of features. Of a module a copy is kept, and
        fresh weights come from the ``reset_parameters`` of its parts, those of inner parts first; parameters that
        require no gradient keep their values.
    project
        If given, features pass a linear layer first, and the module reads so many. Sparse features then stay sparse;
        without it they are made dense, which takes four bytes for each vertex and feature.

    Examples
    --------
    >>> class Twice(nn.Module):
    ...     def __init__(self, inputs):
    ...         super().__init__()
    ...         self.inner = nn.Linear(inputs, 8)
    ...
    ...     def forward(self, x, edge_index):
    ...         h = self.inner(x)
    ...         return torch.relu(h.index_add(0, edge_index[1], h[edge_index[0]]))
    >>> {name: tuple(value.shape) for name, value in Custom(Twice).parameters(5, 3, Draw(0)).items()}
    {'module.inner.weight': (8, 5), 'module.inner.bias': (8,), 'head.weight': (8, 3), 'head.bias': (3,)}
    """

    module: nn.Module | Callable[[int], nn.Module]
    project: int | None = None

    def __post_init__(self) -> None:
        if self.project is not None:
            check_settings(project=self.project)
        if isinstance(self.module, nn.Module):
            if any(nn.parameter.is_lazy(value) for value in (*self.module.parameters(), *self.module.buffers())):
                raise InputError("the module has lazy layers, which fit any number of features", fix=f"give {_FACTORY}")
            _ = self._copy  # at once: what becomes of the module later must not matter
        elif not callable(self.module):
            raise InputError(f"module is {self.module!r}", fix=f"give a torch module, or {_FACTORY}")

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p: Parameters = {}
        width = inputs
        if self.project is not None:
            p["project.weight"], p["project.bias"] = draw.linear(inputs, self.project)
            width = self.project
        # Not the seed itself: torch would then draw the very numbers that the linear layers here are drawn from.
        with _seeded(Draw(draw.seed).seed):
            module, hidden = self._fresh(width)
        p |= _state(module)
        p["head.weight"], p["head.bias"] = draw.linear(hidden, outputs)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return () if self.project is None else ("project.weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        x: Tensor | SparseMatrix = batch.x
        if self.project is not None:
            x = linear(x, p["project.weight"], p["project.bias"])
        elif isinstance(x, SparseMatrix):
            x = x.to_dense()
        module = self._ready(x.shape[1]).train(noise is not None)
        state = {
            name.removeprefix(start): p[name] for start in (_MODULE, _BUFFER) for name in p if name.startswith(start)
        }
        # A module that draws random numbers even when it should not is at least the same each time.
        with _seeded(0 if noise is None else noise.seed()):
            found = torch.func.functional_call(module, state, (x, batch.graph.edge_index), strict=True)
        hidden = _checked(found, len(batch.graph))[: batch.rows]
        return linear(hidden, p["head.weight"], p["head.bias"]), hidden

    def trained(self, name: str) -> bool:
        """See `Model`; buffers are not, nor parameters that require no gradient, which have their names too."""
        return not name.startswith(_BUFFER)

    @cached_property
    def _copy(self) -> nn.Module | None:
        return copy.deepcopy(self.module) if isinstance(self.module, nn.Module) else None

    @cached_property
    def _made(self) -> dict[int, nn.Module]:
        """The module that computes, by its number of features: one at most, for they only grow."""
        return {}

    def _fresh(self, width: int) -> tuple[nn.Module, int]:
        """A module with fresh parameters, and the length of the vectors it returns."""
        made: Any = self.module(width) if self._copy is None else _redrawn(self._copy)
        if not isinstance(made, nn.Module):
            raise InputError(f"the function of a custom model made {made!r}", fix="return a torch module")
        return made, _try_out(made, width)

    def _ready(self, width: int) -> nn.Module:
        """The module to compute with; its own values do not matter."""
        if self._copy is not None:
            return self._copy
        if width not in self._made:
            with _seeded(0):
                module, _ = self._fresh(width)
            self._made.clear()
            self._made[width] = module
        return self._made[width]


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within, torch draws from a seed; what it draws elsewhere does not notice."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _state(module: nn.Module) -> Parameters:
    """Parameters and buffers by their names in the learner's dict."""
    trained = {name for name, value in module.named_parameters() if value.requires_grad}
    values = [*module.named_parameters(), *module.named_buffers()]
    return {(_MODULE if name in trained else _BUFFER) + name: value.detach().clone() for name, value in values}


def _redrawn(module: nn.Module) -> nn.Module:
    """A copy of a module with fresh parameters."""
    fresh = copy.deepcopy(module)
    with torch.no_grad():
        kept = {name: value.clone() for name, value in fresh.named_parameters() if not value.requires_grad}
        drawn = [value for value in fresh.parameters() if value.requires_grad]
        # What is still NaN afterwards was not drawn: whether a part has the method does not say what that touches.
        for value in drawn:
            value.fill_(torch.nan)
        for part in reversed([*fresh.modules()]):
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
        left = [name for name, value in fresh.named_parameters() if value.requires_grad and value.isnan().any()]
        if left:
            raise InputError(
                f"no part of the module draws its parameter {left[0]!r} afresh",
                fix=f"give {_FACTORY}, or write a method reset_parameters that draws it",
            )
        for name, before in kept.items():
            fresh.get_parameter(name).copy_(before)
    return fresh


def _try_out(module: nn.Module, inputs: int) -> int:
    """Length of the vectors that a module returns, found on a graph of two vertices and one edge."""
    try:
        with torch.no_grad():
            found = module.eval()(torch.zeros(2, inputs), torch.tensor([[0, 1], [1, 0]]))
    except Exception as error:
        raise InputError(
            f"the module fails on features of width {inputs}: {error}",
            fix=f"give it features of the width it was made for, or set project= to that, or give {_FACTORY}",
        ) from error
    return _checked(found, 2).shape[1]


def _checked(found: Any, vertices: int) -> Tensor:
    """What a module returned, if it is a vector for each vertex."""
    if isinstance(found, Tensor) and found.dim() == 2 and len(found) == vertices and found.dtype == torch.float32:
        return found
    what = f"{found.dtype} of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise InputError(
        f"the module returned {what} for {vertices} vertices", fix="return a float32 tensor with a row for each vertex"
    )


def as_model(model: Model | nn.Module | None) -> Model:
    """Return a model as it is, a module with an output layer on top, or the default model.

    Examples
    --------
    >>> as_model(None)
    GraphSAGE(hidden=32, layers=2, dropout=0.5)
    """
    if model is None:
        return GraphSAGE()
    if isinstance(model, nn.Module):
        return Custom(model)
    if not isinstance(model, Model):
        raise InputError(f"{model!r} is no model", fix="give one of evergraph.nn or a torch.nn.Module")
    return model
