"""Two pieces of machine code that no loop compiles to reliably: eight 64-bit words side by side.

Both are written as LLVM vectors of eight words, which every processor can carry out: in one register with
AVX-512, in two with AVX2, in four with NEON.  `compiled_scan` and
`compiled_columns` call them; NumPy references stand beside the
public functions of `blocked` and `vertical`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Sequence

LANES = 8
DEPTH = 8  # codes of a group that share a lane
GROUP = LANES * DEPTH
COLUMNS = 16  # bit columns added at once

_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, LANES)


@intrinsic(prefer_literal=True)
def mark_near(  # type: ignore[no-untyped-def]
    typing_context,
    words,
    start,
    stride,
    n_groups,
    queries,
    query_at,
    limits,
    limit_at,
    hits,
    n_words,
    n_queries,
):
    """Mark which lanes of each group of codes hold one within the limit of each query.

    Word ``w`` of code ``i`` is ``words[start + w * stride + i]``, word ``w`` of query ``a`` is
    ``queries[query_at + a * n_words + w]``.  Bit ``l`` of ``hits[g * n_queries + a]`` is set if a code
    ``g * GROUP + l + 8 * s`` has at most ``limits[limit_at + a]`` bits unlike query ``a``.  A literal
    ``n_words`` makes code for that width.
    """
    width = getattr(n_words, "literal_value", None)
    count = n_queries.literal_value
    unrolled = max(1, DEPTH // (count * (width or DEPTH)))  # short bodies: code for all widths is compiled
    place = types.intp
    signature = types.void(
        words, place, place, place, queries, place, limits, place, hits, n_words, n_queries
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = [_data(context, builder, signature, arguments, place) for place in (0, 4, 6, 8)]
        words_at, queries_at, limits_at, hits_at = data
        start, stride, n_groups, query_at, limit_at = (arguments[place] for place in (1, 2, 3, 5, 7))
        n_words = arguments[9] if width is None else _intp(width)
        sums = [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]
        least = [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]
        limits_ = [
            _splat(builder, _item(builder, limits_at, builder.add(limit_at, _intp(a)))) for a in range(count)
        ]

        def query(a: int, w: Any) -> Any:
            place = builder.add(query_at, builder.add(builder.mul(_intp(a), n_words), w))
            return _splat(builder, _item(builder, queries_at, place))

        fixed = None
        if width is not None:
            fixed = [[query(a, _intp(w)) for a in range(count)] for w in range(width)]

        def add_word(at: Any, w: Any, values: Sequence[Any]) -> None:
            x = _load(builder, words_at, builder.add(at, builder.mul(w, stride)))
            for total, value in zip(sums, values, strict=True):
                builder.store(builder.add(builder.load(total), _ones(builder, builder.xor(x, value))), total)

        def one_step(at: Any) -> None:
            for total in sums:
                builder.store(_constant(0), total)
            if fixed is not None:
                for w, values in enumerate(fixed):
                    add_word(at, _intp(w), values)
            else:
                with cgutils.for_range(builder, n_words) as loop:
                    add_word(at, loop.index, [query(a, loop.index) for a in range(count)])
            for total, best in zip(sums, least, strict=True):
                value, old = builder.load(total), builder.load(best)
                builder.store(builder.select(builder.icmp_signed("<", value, old), value, old), best)

        with cgutils.for_range(builder, n_groups) as loop:
            for best in least:
                builder.store(_constant(1 << 40), best)
            base = builder.add(start, builder.mul(loop.index, _intp(GROUP)))
            with cgutils.for_range_slice(
                builder, _intp(0), _intp(DEPTH), _intp(unrolled), intp=_WORD
            ) as step:
                for following in range(unrolled):
                    place = builder.mul(builder.add(step[0], _intp(following)), _intp(LANES))
                    one_step(builder.add(base, place))
            for a, best in enumerate(least):
                near = builder.icmp_signed("<=", builder.load(best), limits_[a])
                place = builder.add(builder.mul(loop.index, _intp(count)), _intp(a))
                builder.store(builder.bitcast(near, ir.IntType(8)), builder.gep(hits_at, [place]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def add_columns(  # type: ignore[no-untyped-def]
    typing_context, columns, starts, place, masks, planes, at, stride, n_planes
):
    """Count, for 512 codes at once, how many of the listed bit columns are set.

    Column ``j`` begins at word ``starts[j]`` of ``columns`` (their number is a multiple of `COLUMNS`); the
    eight words from ``place`` on are added.  Bit ``p`` of the 512 counts goes to the eight words of
    ``planes`` from ``at + p * stride`` on.  Counting begins at the number that ``masks`` spells (a word of
    zeros or ones for each of ``n_planes`` bits); what overflows ends in plane ``n_planes``, which begins as
    ``masks[n_planes]``.
    """
    high = n_planes.literal_value
    signature = types.void(columns, starts, types.intp, masks, planes, types.intp, types.intp, n_planes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = [_data(context, builder, signature, arguments, n) for n in (0, 1, 3, 4)]
        columns_at, starts_at, masks_at, planes_at = data
        n_columns = _length(context, builder, signature, arguments, 1)
        counts = [cgutils.alloca_once(builder, _VECTOR) for _ in range(high + 1)]
        for p, plane in enumerate(counts):
            builder.store(_splat(builder, _item(builder, masks_at, _intp(p))), plane)
        with cgutils.for_range_slice(builder, _intp(0), n_columns, _intp(COLUMNS), intp=_WORD) as (j, _):
            carries = []
            for c in range(COLUMNS):
                start = _item(builder, starts_at, builder.add(j, _intp(c)))
                carries.append(_load(builder, columns_at, builder.add(start, arguments[2])))
            for plane in counts[:4]:  # 16 columns make 8 carries of two, 4 of four, 2 of eight, 1 of sixteen
                total, made = builder.load(plane), []
                for left, right in zip(carries[::2], carries[1::2], strict=True):
                    total, carry = _full_adder(builder, total, left, right)
                    made.append(carry)
                builder.store(total, plane)
                carries = made
            carry = carries[0]
            for plane in counts[4:high]:
                old = builder.load(plane)
                builder.store(builder.xor(old, carry), plane)
                carry = builder.and_(old, carry)
            builder.store(builder.or_(builder.load(counts[high]), carry), counts[high])
        for p, plane in enumerate(counts):
            to = builder.add(arguments[5], builder.mul(_intp(p), arguments[6]))
            _store(builder, builder.load(plane), planes_at, to)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch(typing_context, words, place):  # type: ignore[no-untyped-def]
    """Ask for the cache line of ``words[place]``, without waiting for it."""
    signature = types.void(words, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at = builder.gep(_data(context, builder, signature, arguments, 0), [arguments[1]])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, near, data = (ir.Constant(number, value) for value in (0, 2, 1))
        builder.call(call, [builder.bitcast(at, byte), read, near, data])
        return context.get_dummy_value()

    return signature, generate


def _full_adder(builder: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return the sum bit and the carry of three bits, in all lanes."""
    either = builder.xor(a, b)
    carry = builder.or_(builder.and_(a, b), builder.and_(either, c))
    return builder.xor(either, c), carry


def _ones(builder: Any, vector: Any) -> Any:
    """Return the number of ones of each word."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.v8i64"), [vector])


def _intp(value: int) -> Any:
    return ir.Constant(_WORD, value)


def _constant(value: int) -> Any:
    return ir.Constant(_VECTOR, [value] * LANES)


def _splat(builder: Any, word: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), word, ir.Constant(ir.IntType(32), 0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), places)


def _data(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    """Return the pointer to the first item of an array argument."""
    return context.make_array(signature.args[place])(context, builder, arguments[place]).data


def _length(context: Any, builder: Any, signature: Any, arguments: Any, place: int) -> Any:
    return context.make_array(signature.args[place])(context, builder, arguments[place]).nitems


def _item(builder: Any, pointer: Any, place: Any) -> Any:
    return builder.load(builder.gep(pointer, [place]))


def _load(builder: Any, pointer: Any, place: Any) -> Any:
    at = builder.bitcast(builder.gep(pointer, [place]), _VECTOR.as_pointer())
    return builder.load(at, align=8)


def _store(builder: Any, vector: Any, pointer: Any, place: Any) -> None:
    at = builder.bitcast(builder.gep(pointer, [place]), _VECTOR.as_pointer())
    builder.store(vector, at, align=8)
