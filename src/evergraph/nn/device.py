"""Devices to compute on."""

from __future__ import annotations

import torch

from evergraph.errors import InputError

__all__ = ["check_device", "choose_device", "devices_here"]


def devices_here() -> list[str]:
    """Return the devices that torch can use on this machine."""
    found = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return found + (["mps"] if torch.backends.mps.is_available() else [])


def choose_device(name: str) -> str:
    """Return the device to use: ``"auto"`` is the first GPU that torch supports with CUDA, or else the CPU.

    Examples
    --------
    >>> choose_device("cpu")
    'cpu'
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    check_device(name)
    return name


def check_device(device: str | torch.device) -> None:
    """Raise an error if torch cannot compute on a device.

    Examples
    --------
    >>> check_device("cpu:7x")
    Traceback (most recent call last):
    evergraph.errors.InputError: torch cannot compute on the device 'cpu:7x' here. Use one of: cpu...
    """
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch without CUDA fails by an assertion
        raise InputError(
            f"torch cannot compute on the device {str(device)!r} here", fix=f"use one of: {', '.join(devices_here())}"
        ) from error
