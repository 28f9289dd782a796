"""Short vectors of float32 numbers inside compiled loops.

Numba vectorises a loop only if it is sure that arrays do not overlap, and it never keeps a row of sums in registers.
These functions give a compiled loop explicit vectors. LLVM maps them to the registers that the CPU has, so the same
code runs with AVX-512, AVX2, NEON or without any of them, and no compiler has to be installed.

All functions are for use in functions that `evergraph.compiled.compiled` compiles. ``lanes`` is the number of floats
of a vector and must be a constant. Places are numbers of elements from an array's first one; arrays must be
contiguous, and nothing checks that a place is inside the array. Vectors have the operators ``+ - * /``.

Instead of an array you can pass its address (``array.ctypes.data``). Numba counts references to the arrays that a
function is given, which takes longer than a short function itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, models, register_model

__all__ = [
    "WIDE",
    "broadcast",
    "exp",
    "fma",
    "keep",
    "largest",
    "load",
    "maximum",
    "pair_totals",
    "positive",
    "prefetch",
    "repeat",
    "sqrt",
    "store",
    "times_one_plus",
    "total",
    "where_negative",
    "wide_ones",
    "wide_product",
]

WIDE = 32 if binding.get_host_cpu_features().get("avx512f") else 16
"""Lanes of the columns of a product's tile: two vectors of the CPU's longest registers."""

_INT32 = ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()
_READ, _KEEP, _DATA = 0, 3, 1  # arguments of LLVM's prefetch
_LEAST = -64.0


class Vector(types.Type):
    """The type of a vector in compiled code."""

    def __init__(self, lanes: int, *, double: bool = False) -> None:
        self.lanes, self.element = lanes, ir.DoubleType() if double else ir.FloatType()
        super().__init__(name=f"float{64 if double else 32}x{lanes}")

    @property
    def ir(self) -> ir.VectorType:
        """The type in LLVM."""
        return ir.VectorType(self.element, self.lanes)

    @property
    def suffix(self) -> str:
        """The end of the names of LLVM's functions for it."""
        return f"v{self.lanes}f32"

    def all(self, number: float) -> Any:
        """Return a constant vector with the same number in each element."""
        return ir.Constant(self.ir, [ir.Constant(self.element, number)] * self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.ir)  # type: ignore[no-untyped-call]  # numba's


def _inlined(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for compiled code, from one that returns its signature and writes its instructions."""
    return intrinsic(prefer_literal=True)(generate)


def _operator(function: Callable[..., Any], instruction: str) -> None:
    """Define an operator of two vectors of the same type."""

    class Template(AbstractTemplate):
        key = function

        def generic(self, arguments: Any, _: Any) -> Any:
            left, right = arguments
            return left(left, right) if isinstance(left, Vector) and left == right else None

    infer_global(function)(Template)  # type: ignore[no-untyped-call]  # numba's

    def generate(context: Any, builder: Any, kind: Any, values: Any) -> Any:  # noqa: ARG001
        return getattr(builder, instruction)(*values)

    lower_builtin(function, Vector, Vector)(generate)  # type: ignore[no-untyped-call]  # numba's


for _function, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_function, _instruction)


def _pointer(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    """Return the address of an element of an array or of an array's address, given as the first two arguments."""
    if isinstance(kinds[0], types.Integer):
        data = builder.inttoptr(values[0], ir.FloatType().as_pointer())
    else:
        data = context.make_array(kinds[0])(context, builder, values[0]).data
    return builder.gep(data, [context.cast(builder, values[1], kinds[1], types.intp)])


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]  # numba's
    return builder.call(function, arguments)


def _spread(builder: Any, value: Any, kind: Any) -> Any:
    """Return a vector whose elements are all the same value."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, _INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT32, kind.count), [0] * kind.count))


@_inlined
def load(typing: Any, array: Any, place: Any, lanes: Any) -> Any:  # noqa: ARG001  # numba's signature
    """Return the elements of an array from a place on."""
    vector = Vector(lanes.literal_value)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = builder.bitcast(_pointer(context, builder, signature.args, values), vector.ir.as_pointer())
        return builder.load(address, align=4)

    return vector(array, place, lanes), generate


@_inlined
def store(typing: Any, array: Any, place: Any, vector: Any) -> Any:  # noqa: ARG001
    """Write a vector into an array from a place on."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = builder.bitcast(_pointer(context, builder, signature.args, values), vector.ir.as_pointer())
        builder.store(values[2], address, align=4)
        return context.get_dummy_value()

    return types.void(array, place, vector), generate


@_inlined
def broadcast(typing: Any, number: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Return a vector whose elements are all the same number."""
    vector = Vector(lanes.literal_value)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        value = context.cast(builder, values[0], signature.args[0], types.float32)
        return _spread(builder, value, vector.ir)

    return vector(number, lanes), generate


@_inlined
def fma(typing: Any, left: Any, right: Any, added: Any) -> Any:  # noqa: ARG001
    """Return ``left * right + added``, rounded once if the CPU can do that."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return _call(builder, f"llvm.fmuladd.{left.suffix}", left.ir, *values)

    return left(left, right, added), generate


@_inlined
def sqrt(typing: Any, vector: Any) -> Any:  # noqa: ARG001
    """Return the square root of each element."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return _call(builder, f"llvm.sqrt.{vector.suffix}", vector.ir, *values)

    return vector(vector), generate


@_inlined
def maximum(typing: Any, left: Any, right: Any) -> Any:  # noqa: ARG001
    """Return the larger of each pair of elements; that of ``right`` if one is NaN."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered(">", *values), *values)

    return left(left, right), generate


@_inlined
def positive(typing: Any, value: Any, of: Any) -> Any:  # noqa: ARG001
    """Return a vector with 0 where another one is 0 or less; the value where that is NaN."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered("<=", values[1], of.all(0)), value.all(0), values[0])

    return value(value, of), generate


@_inlined
def where_negative(typing: Any, condition: Any, negative: Any, other: Any) -> Any:  # noqa: ARG001
    """Return elements of one vector where the condition is below 0, else those of another."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.select(builder.fcmp_ordered("<", values[0], condition.all(0)), *values[1:])

    return negative(condition, negative, other), generate


@_inlined
def exp(typing: Any, vector: Any) -> Any:  # noqa: ARG001
    """Return the exponential of numbers up to 0, exact to 3e-7; 0 below -64.

    A smaller result would be correct, but products with it would soon be denormal numbers, which are slow.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        x, least = values[0], vector.all(_LEAST)
        bounded = builder.select(builder.fcmp_ordered(">", x, least), x, least)  # NaN is not an integer
        power = builder.fmul(bounded, vector.all(1.4426950408889634))
        power = _call(builder, f"llvm.rint.{vector.suffix}", vector.ir, power)
        # The logarithm of 2 in two parts; the product with the first is exact.
        rest = builder.fsub(x, builder.fmul(power, vector.all(0.693359375)))
        rest = builder.fsub(rest, builder.fmul(power, vector.all(-2.12194440e-4)))
        series = vector.all(1 / 720)
        for factor in (1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            series = _call(builder, f"llvm.fmuladd.{vector.suffix}", vector.ir, series, rest, vector.all(factor))
        whole = ir.VectorType(_INT32, vector.lanes)
        bits = builder.add(builder.fptosi(power, whole), ir.Constant(whole, [127] * vector.lanes))
        bits = builder.shl(bits, ir.Constant(whole, [23] * vector.lanes))
        found = builder.fmul(series, builder.bitcast(bits, vector.ir))
        return builder.select(builder.fcmp_ordered("<=", x, least), vector.all(0), found)

    return vector(vector), generate


@_inlined
def keep(typing: Any, vector: Any, place: Any, first: Any, second: Any, threshold: Any, dropped: Any) -> Any:  # noqa: ARG001
    """Return a vector after dropout by the hash of each element's place; ``dropped`` is what dropped elements become.

    It is the hash of `evergraph.nn.kernels`, for the places from ``place`` on.
    """
    lanes = vector.lanes
    ints = ir.VectorType(_INT32, lanes)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def spread(number: int) -> Any:
            value = context.cast(builder, values[number], signature.args[number], types.uint32)
            return _spread(builder, value, ints)

        def rounds(x: Any) -> Any:
            for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
                x = builder.xor(x, builder.lshr(x, ir.Constant(ints, [shift] * lanes)))
                x = builder.mul(x, ir.Constant(ints, [factor] * lanes))
            return builder.xor(x, builder.lshr(x, ir.Constant(ints, [16] * lanes)))

        x = builder.add(spread(1), ir.Constant(ints, list(range(lanes))))
        x = rounds(builder.add(rounds(builder.xor(x, spread(2))), spread(3)))
        return builder.select(builder.icmp_unsigned(">=", x, spread(4)), values[0], values[5])

    return vector(vector, place, first, second, threshold, dropped), generate


def _halves(builder: Any, value: Any, lanes: int, *, pairs: bool) -> Any:
    """Return two halves of a vector: the elements at even and odd places, or the first and the last."""
    half = lanes // 2
    parts = (range(0, lanes, 2), range(1, lanes, 2)) if pairs else (range(half), range(half, lanes))
    return (builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(_INT32, half), list(p))) for p in parts)


def _reduced(combine: Callable[..., Any], result: Any) -> Callable[..., Any]:
    """Return a function that combines all elements of a vector, in pairs."""

    def reduce(typing: Any, vector: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
            value, lanes = values[0], vector.lanes
            while lanes > 1:
                value, lanes = combine(builder, *_halves(builder, value, lanes, pairs=False)), lanes // 2
            return builder.extract_element(value, _INT32(0))

        return result(vector), generate

    return _inlined(reduce)


total = _reduced(lambda builder, low, high: builder.fadd(low, high), types.float32)
"""Return the sum of a vector's elements."""

largest = _reduced(
    lambda builder, low, high: builder.select(builder.fcmp_ordered(">", low, high), low, high), types.float32
)
"""Return the largest of a vector's elements."""

wide_product = _reduced(lambda builder, low, high: builder.fmul(low, high), types.float64)
"""Return the product of the elements of a vector of doubles."""


@_inlined
def pair_totals(typing: Any, vector: Any) -> Any:  # noqa: ARG001
    """Return a vector of half the length: the sums of elements 0 and 1, 2 and 3, and so on."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        return builder.fadd(*_halves(builder, values[0], vector.lanes, pairs=True))

    return Vector(vector.lanes // 2)(vector), generate


@_inlined
def repeat(typing: Any, vector: Any, times: Any) -> Any:  # noqa: ARG001
    """Return a longer vector, in which each element is repeated."""
    places = [lane for lane in range(vector.lanes) for _ in range(times.literal_value)]

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        mask = ir.Constant(ir.VectorType(_INT32, len(places)), places)
        return builder.shuffle_vector(values[0], values[0], mask)

    return Vector(len(places))(vector, times), generate


@_inlined
def wide_ones(typing: Any, lanes: Any) -> Any:  # noqa: ARG001
    """Return a vector of doubles that are 1."""
    vector = Vector(lanes.literal_value, double=True)
    return vector(lanes), lambda *_: vector.all(1)


@_inlined
def times_one_plus(typing: Any, product: Any, vector: Any) -> Any:  # noqa: ARG001
    """Return ``product * (1 + vector)`` in double precision."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        added = builder.fadd(product.all(1), builder.fpext(values[1], product.ir))
        return builder.fmul(values[0], added)

    return product(product, vector), generate


@_inlined
def prefetch(typing: Any, array: Any, place: Any) -> Any:  # noqa: ARG001
    """Ask for the cache line of an element, which will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = builder.bitcast(_pointer(context, builder, signature.args, values), _BYTES)
        options = [_INT32(option) for option in (_READ, _KEEP, _DATA)]
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), address, *options)
        return context.get_dummy_value()

    return types.void(array, place), generate
