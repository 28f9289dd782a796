"""Devices to compute on."""

from __future__ import annotations

import torch

from evergraph.errors import InputError

__all__ = ["check_device", "choose_device", "devices_here"]


def devices_here() -> list[str]:
    """Return the CPU and the GPUs that torch can use with CUDA on this machine."""
    return ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]


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
    """Raise an error if torch cannot compute on a device, also with the double precision that detectors need.

    Examples
    --------
    >>> check_device("cpu:7x")
    Traceback (most recent call last):
    evergraph.errors.InputError: torch cannot compute on the device 'cpu:7x' here. Use one of: cpu...
    """
    try:
        torch.zeros(1, dtype=torch.float64, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:  # torch without CUDA asserts
        raise InputError(
            f"torch cannot compute on the device {str(device)!r} here", fix=f"use one of: {', '.join(devices_here())}"
        ) from error
