"""Your own torch module as a model."""

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
from evergraph.nn.base import Batch, Draw, Model, Parameters, check_settings
from evergraph.nn.ops import Matrix, Noise, linear

__all__ = ["Custom"]

_MODULE, _BUFFER = "module.", "buffer."
_FACTORY = "a function that returns the module for a number of features"


@dataclass(frozen=True)
class Custom(Model):
    """A torch module in the style of PyTorch Geometric, with a linear output layer that grows with the classes.

    The module is called as ``module(x, edge_index)`` and returns a vector for each vertex. The edges are in both
    directions, without self-loops. The module defines how weights are drawn and used, but the learner holds them. It
    must not store anything about a graph, and must update its buffers in place.

    If features grow over time, use ``project``, or pass a function that returns the module. In that case, features
    must be in order along each axis of a parameter: when an axis grows, the old values replace the new ones from the
    first position on. `carry_over` raises an error if a parameter shrinks, but cannot detect a different order.

    Parameters
    ----------
    module
        A module, or a function (or class) that returns one for a number of features. A module is copied, and new
        weights are drawn by the ``reset_parameters`` of its parts, inner parts first. Parameters that do not require a
        gradient keep their values.
    project
        If given, a linear layer maps features to this width before the module. Sparse features then stay sparse.
        Without it they are made dense, which takes four bytes per vertex and feature.

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
                raise InputError("the module has lazy layers", fix=f"give {_FACTORY}")
            _ = self._copy  # now, because the module may change later
        elif not callable(self.module):
            raise InputError(f"module is {self.module!r}", fix=f"give a torch module, or {_FACTORY}")

    def parameters(self, inputs: int, outputs: int, draw: Draw) -> Parameters:
        p: Parameters = {}
        width = inputs
        if self.project is not None:
            p["project.weight"], p["project.bias"] = draw.linear(inputs, self.project)
            width = self.project
        # Not the seed itself, or torch would draw the same numbers as the linear layers here.
        with _seeded(Draw(draw.seed).seed):
            module, hidden = self._fresh(width)
        p |= _state(module)
        p["head.weight"], p["head.bias"] = draw.linear(hidden, outputs)
        return p

    def input_weights(self) -> tuple[str, ...]:
        return () if self.project is None else ("project.weight",)

    def forward(self, p: Parameters, batch: Batch, noise: Noise | None) -> tuple[Tensor, Tensor]:
        x: Matrix = batch.x
        if self.project is not None:
            x = linear(x, p["project.weight"], p["project.bias"])
        elif not isinstance(x, Tensor):
            x = x.to_dense()
        module = self._ready(x.shape[1]).train(noise is not None)
        state = {
            name.removeprefix(start): p[name] for start in (_MODULE, _BUFFER) for name in p if name.startswith(start)
        }
        # Seeded also without noise, so that a module that always draws random numbers is at least repeatable.
        with _seeded(0 if noise is None else noise.seed()):
            found = torch.func.functional_call(module, state, (x, batch.graph.edge_index), strict=True)
        hidden = _checked(found, len(batch.graph))[: batch.rows]
        return linear(hidden, p["head.weight"], p["head.bias"]), hidden

    @property
    def takes_classes(self) -> bool:
        """Return False for a module that was built for a number of features and reads them itself."""
        return self.project is not None or self._copy is None

    def trained(self, name: str) -> bool:
        """Return False for buffers and for parameters that do not require a gradient."""
        return not name.startswith(_BUFFER)

    @cached_property
    def _copy(self) -> nn.Module | None:
        return copy.deepcopy(self.module) if isinstance(self.module, nn.Module) else None

    @cached_property
    def _made(self) -> dict[int, nn.Module]:
        """The module that computes, by its number of features: at most one, because they only grow."""
        return {}

    def _fresh(self, width: int) -> tuple[nn.Module, int]:
        """Return a module with new parameters, and the length of the vectors it returns."""
        made: Any = self.module(width) if self._copy is None else _redrawn(self._copy)
        if not isinstance(made, nn.Module):
            raise InputError(f"the function of a custom model returned {made!r}", fix="return a torch module")
        return made, _try_out(made, width)

    def _ready(self, width: int) -> nn.Module:
        """Return the module to compute with; its own parameter values are not used."""
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
    """Make torch draw from a seed inside the context, without effect on later draws."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _state(module: nn.Module) -> Parameters:
    """Return parameters and buffers by their names in the learner's dict."""
    trained = {name for name, value in module.named_parameters() if value.requires_grad}
    values = [*module.named_parameters(), *module.named_buffers()]
    return {(_MODULE if name in trained else _BUFFER) + name: value.detach().clone() for name, value in values}


def _redrawn(module: nn.Module) -> nn.Module:
    """Return a copy of a module with new parameters."""
    fresh = copy.deepcopy(module)
    with torch.no_grad():
        kept = {name: value.clone() for name, value in fresh.named_parameters() if not value.requires_grad}
        drawn = [value for value in fresh.parameters() if value.requires_grad]
        # Values that are still NaN afterwards were not drawn: a part's method may not reset all its parameters.
        for value in drawn:
            value.fill_(torch.nan)
        for part in reversed([*fresh.modules()]):
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
        left = [name for name, value in fresh.named_parameters() if value.requires_grad and value.isnan().any()]
        if left:
            raise InputError(
                f"no reset_parameters method of the module draws the parameter {left[0]!r}",
                fix=f"give {_FACTORY}, or write a reset_parameters method that draws it",
            )
        for name, before in kept.items():
            fresh.get_parameter(name).copy_(before)
    return fresh


def _try_out(module: nn.Module, inputs: int) -> int:
    """Return the length of the module's vectors, from a call with two vertices and one edge."""
    try:
        with torch.no_grad():
            found = module.eval()(torch.zeros(2, inputs), torch.tensor([[0, 1], [1, 0]]))
    except Exception as error:
        raise InputError(
            f"the module fails on features of width {inputs}: {error}",
            fix=f"give features of the width it was built for, set project= to that width, or give {_FACTORY}",
        ) from error
    return _checked(found, 2).shape[1]


def _checked(found: Any, vertices: int) -> Tensor:
    """Return the module's result if it is a vector for each vertex."""
    if isinstance(found, Tensor) and found.dim() == 2 and len(found) == vertices and found.dtype == torch.float32:
        return found
    what = f"{found.dtype} of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
    raise InputError(
        f"the module returned {what} for {vertices} vertices", fix="return a float32 tensor with a row for each vertex"
    )
