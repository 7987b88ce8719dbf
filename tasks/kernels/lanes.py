"""A piece of machine code: rows of look-up tables added for many queries side by side.

Written, like those of `vectors`, as LLVM vectors that every processor can carry out.  `compiled_weighted`
calls it, and `weighted` holds the NumPy reference.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .vectors import _data, _intp, _item

LARGEST = 2**15 - 1  # of a sum
VALUES = 16  # of half a byte

_BYTE, _SHORT = ir.IntType(8), ir.IntType(16)


@intrinsic(prefer_literal=True)
def mark_light(  # type: ignore[no-untyped-def]
    typing_context, codes, start, n_bytes, n_codes, tables, limits, hits, lanes
):
    """Mark for which queries the weights that each code looks up add up to no more than their limit.

    Byte ``j`` of code ``i`` is ``codes[start + i * n_bytes + j]``.  Half a byte ``v`` at place ``h`` (the
    lower half first) weighs ``tables[(h * 16 + v) * lanes + q]`` for query ``q``, an int16, and no sum
    exceeds `LARGEST`.  Bit ``q`` of ``hits[i]`` says whether the sum is at most ``limits[q]``.
    """
    width = lanes.literal_value
    place = types.intp
    signature = types.void(codes, place, place, place, tables, limits, hits, lanes)
    vector = ir.VectorType(_SHORT, width)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        codes_at, tables_at, limits_at, hits_at = (
            _data(context, builder, signature, arguments, n) for n in (0, 4, 5, 6)
        )
        start, n_bytes, n_codes = arguments[1:4]
        sums = [cgutils.alloca_once(builder, vector) for _ in range(2)]

        def load(pointer: Any, at: Any) -> Any:
            where = builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())
            return builder.load(where, align=2)

        def add(total: Any, half: Any, value: Any) -> None:
            row = builder.add(builder.mul(half, _intp(VALUES)), builder.zext(value, ir.IntType(64)))
            weights = load(tables_at, builder.mul(row, _intp(width)))
            builder.store(builder.add(builder.load(total), weights), total)

        bounds = load(limits_at, _intp(0))
        with cgutils.for_range(builder, n_codes) as code:
            for total in sums:
                builder.store(ir.Constant(vector, [0] * width), total)
            first = builder.add(start, builder.mul(code.index, n_bytes))
            with cgutils.for_range(builder, n_bytes) as loop:
                byte = _item(builder, codes_at, builder.add(first, loop.index))
                half = builder.mul(loop.index, _intp(2))
                add(sums[0], half, builder.and_(byte, ir.Constant(_BYTE, 15)))
                add(sums[1], builder.add(half, _intp(1)), builder.lshr(byte, ir.Constant(_BYTE, 4)))
            total = builder.add(builder.load(sums[0]), builder.load(sums[1]))
            near = builder.bitcast(builder.icmp_signed("<=", total, bounds), ir.IntType(width))
            builder.store(builder.zext(near, ir.IntType(32)), builder.gep(hits_at, [code.index]))
        return context.get_dummy_value()

    return signature, generate
