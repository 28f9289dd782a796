"""scikit-learn's idioms for a class whose arguments are its settings."""

from __future__ import annotations

import inspect
from typing import Any, Self

from evergraph.errors import InputError

__all__ = ["Params"]


class Params:
    """Arguments of the constructor, kept under their names: to read, to change and to print.

    Examples
    --------
    >>> class Oven(Params):
    ...     def __init__(self, degrees=180, fan=False):
    ...         self.degrees, self.fan = degrees, fan
    >>> Oven(fan=True).set_params(degrees=200)
    Oven(degrees=200, fan=True)
    """

    def get_params(self, deep: bool = False) -> dict[str, Any]:  # noqa: ARG002  # as scikit-learn has it
        """The arguments by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments. If one is refused, none is changed."""
        before = self.get_params()
        if unknown := params.keys() - before.keys():
            raise InputError(f"there is no argument {min(unknown)!r}", fix=f"use one of {', '.join(before)}")
        self.__dict__.update(params)
        try:
            self._check()
        except InputError:
            self.__dict__.update(before)
            raise
        return self

    def _check(self) -> None:
        """Refuse arguments that make no sense."""

    def __repr__(self) -> str:
        defaults = self._defaults()
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
