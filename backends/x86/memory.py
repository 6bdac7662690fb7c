"""Tensors in memory: elements, parts, new buffers and their sizes."""

from __future__ import annotations

from tlc.backends.x86 import narrow
from tlc.backends.x86.addresses import displaced, element
from tlc.backends.x86.calls import call_c, context
from tlc.backends.x86.ops import Address
from tlc.backends.x86.selector import Selector, fits, real_bits
from tlc.frontend.narrow_reals import NARROW, to_memory
from tlc.frontend.ops import DTYPES
from tlc.frontend.types import Elem
from tlc.opt.ranges import EXTENT
from tlc.regalloc.ir import VReg
from tlc.ssa.ir import Instr, Value

WORDWISE = 96  # bytes that are copied without a call
GREATEST = 2**63 - 1  # the size of what is too large to have one


# ---------------------------------------------------------------- elements


def load_element(s: Selector, result: VReg, mem: Address, elem: Elem) -> None:
    """Load a scalar. Integers are extended to the whole register."""
    if elem in NARROW:
        narrow.load(s, result, mem, elem)
    elif elem.is_real:
        s.ins("fload", result, mem=mem, w=elem.width)
    else:
        s.ins("load", result, mem=mem, w=elem.width, ext="s" if elem.is_signed else "z")


def store_element(s: Selector, value: Value, mem: Address) -> None:
    """Store a scalar; a constant as it is."""
    elem = value.type.elem
    bits = constant_bits(s, value)
    if bits is not None and fits(bits):
        s.ins("store_i", mem=mem, imm=bits, w=elem.width)
    elif elem in NARROW:
        narrow.store(s, s.reg(value), mem, elem)
    elif elem.is_real:
        s.ins("fstore", s.reg(value), mem=mem, w=elem.width)
    else:
        s.ins("store", s.reg(s.low(value, elem.width)), mem=mem, w=elem.width)


def constant_bits(s: Selector, value: Value) -> int | None:
    """The bits of a constant as it lies in memory, as a signed number of its width."""
    literal, elem = s.parts.literal(value), value.type.elem
    if literal is None:
        return None
    if elem in NARROW:
        number = DTYPES[elem].type(literal)
        bits = int(to_memory(number) if elem is Elem.BF16 else number.view("u2"))
    elif elem.is_real:
        bits = real_bits(float(literal), elem.width)
    else:
        bits = s.number(literal, elem)
    bits &= (1 << elem.width) - 1
    return bits - (1 << elem.width) if bits >> elem.width - 1 else bits


def op_load(s: Selector, instr: Instr) -> None:
    tensor, position = instr.operands
    load_element(s, s.result(instr), element(s, tensor, position), tensor.type.elem)


def op_store(s: Selector, instr: Instr) -> None:
    tensor, position, value = instr.operands
    if not _changed_in_place(s, instr):
        store_element(s, value, element(s, tensor, position))


def _changed_in_place(s: Selector, store: Instr) -> bool:
    """Write `x[i] = x[i] + v` as one instruction on the memory, if that was the element's only reading and nothing wrote between."""
    tensor, position, value = store.operands
    change = s.producer(value, "add", "sub", "and", "or", "xor")
    elem = value.type.elem
    if change is None or not elem.is_int or change.result.type.elem is not elem or change.block is not s.block or not s.only_here(value):
        return False
    orders = (change.operands,) if change.op == "sub" else (change.operands, change.operands[::-1])
    for old, by in orders:
        load = s.memory(old, elem.width)
        if load is None or load.result.type.elem is not elem or s.parts.of(load.operands[0]) != s.parts.of(tensor):
            continue
        if s.parts.of(load.operands[1]) != s.parts.of(position):
            continue
        mem, imm = element(s, tensor, position), s.immediate(by)
        if imm is not None:
            s.ins(f"{change.op}_to_i", mem=mem, imm=imm, w=elem.width)
        else:
            s.ins(f"{change.op}_to", s.reg(s.low(by, elem.width)), mem=mem, w=elem.width)
        return True
    return False


# ---------------------------------------------------------------- parts


def op_index(s: Selector, instr: Instr) -> None:
    tensor, *indices = instr.operands
    mem = _part(s, tensor, indices)
    if not instr.result.type.rank:
        load_element(s, s.result(instr), mem, tensor.type.elem)
        return
    size = _bytes(s, tensor.type.elem, [(tensor, 1 + len(indices) + k) for k in range(instr.result.type.rank)])
    _copy(s, _address(s, mem), size, instr, s.reg(instr.result))


def op_update(s: Selector, instr: Instr) -> None:
    tensor, *indices, value = instr.operands
    mem = _part(s, tensor, indices)
    if value.type.rank:
        size = _bytes(s, value.type.elem, [(value, 1 + k) for k in range(value.type.rank)])
        _move(s, _address(s, mem), s.reg(value), size)
    else:
        store_element(s, value, mem)


def op_view(s: Selector, instr: Instr) -> None:
    tensor, *words = instr.operands
    s.ins("lea", s.result(instr), mem=_part(s, tensor, words[: len(words) - instr.result.type.rank]), w=64)


def op_split(s: Selector, instr: Instr) -> None:
    tensor, *indices = instr.operands
    if s.asked(instr.results[1]):
        s.ins("lea", s.result(instr, 1), mem=_part(s, tensor, indices), w=64)


def _part(s: Selector, tensor: Value, indices: list[Value]) -> Address:
    """Where the part of a tensor at leading indices begins."""
    if len(indices) == 1 == tensor.type.rank:
        return displaced(s, s.reg(tensor), indices[0], tensor.type.elem.bytes)
    flat: VReg | None = None
    for k in range(tensor.type.rank):
        if flat is not None:
            flat = s.make("imul", flat, s.reg(tensor, 1 + k), w=64)
        if k < len(indices):
            flat = s.reg(indices[k]) if flat is None else s.make("add", flat, s.reg(indices[k]), w=64)
    return Address(s.reg(tensor), flat, tensor.type.elem.bytes)


def _address(s: Selector, mem: Address) -> VReg:
    return s.make("lea", mem=mem, w=64)


# ---------------------------------------------------------------- buffers


def op_alloc(s: Selector, instr: Instr) -> None:
    type = instr.result.type
    if not type.rank:
        if type.elem.is_real:
            s.ins("fconst", s.result(instr), bits=0, w=64 if type.elem is Elem.F64 else 32)
        else:
            s.ins("mov_i", s.result(instr), imm=0, w=64)
        return
    _buffer(s, _bytes(s, type.elem, [(v, 0) for v in instr.operands]), instr, s.reg(instr.result))


def op_copy(s: Selector, instr: Instr) -> None:
    (source,) = instr.operands
    if source.type.rank:
        size = _bytes(s, source.type.elem, [(source, 1 + k) for k in range(source.type.rank)])
        _copy(s, s.reg(source), size, instr, s.reg(instr.result))


def op_free(s: Selector, instr: Instr) -> None:
    call_c(s, "tlc.free", [context(s), s.reg(instr.operands[0])])


def op_reshape(s: Selector, instr: Instr) -> None:
    source, result = instr.operands[0], instr.result
    if source.type.rank and not result.type.rank:
        load_element(s, s.result(instr), Address(s.reg(source)), source.type.elem)
    elif result.type.rank and not source.type.rank:
        _buffer(s, _bytes(s, result.type.elem, [(v, 0) for v in instr.operands[1:]]), instr, s.reg(result))
        store_element(s, source, Address(s.reg(result)))


def _buffer(s: Selector, size: VReg | int, instr: Instr, result: VReg) -> None:
    """A new buffer; stops the run if there is no memory."""
    bytes = s.integer(size) if isinstance(size, int) else size
    call_c(s, "tlc.alloc", [context(s), bytes], result)
    site = s.site("memory", "there is no memory for a tensor of {0} bytes", (Elem.I64,), instr.span)
    slots, late = ((size,), ()) if isinstance(size, int) else ((None,), (size,))
    s.ins("check_i", result, late=late, cc="eq", imm=0, w=64, site=site, slots=slots)


def _copy(s: Selector, source: VReg, size: VReg | int, instr: Instr, result: VReg) -> None:
    _buffer(s, size, instr, result)
    _move(s, result, source, size)


def _move(s: Selector, to: VReg, source: VReg, size: VReg | int) -> None:
    """Copy bytes between buffers; a few of them word by word."""
    if isinstance(size, int) and size <= WORDWISE:
        at = 0
        for bytes in (8, 4, 2, 1):
            while size - at >= bytes:
                word = s.make("load", mem=Address(source, offset=at), w=8 * bytes, ext="z")
                s.ins("store", word, mem=Address(to, offset=at), w=8 * bytes)
                at += bytes
        return
    call_c(s, "memcpy", [to, source, s.integer(size) if isinstance(size, int) else size])


def _bytes(s: Selector, elem: Elem, extents: list[tuple[Value, int]]) -> VReg | int:
    """The size of a buffer, the largest number if it overflows or if an extent is not below `EXTENT`, on which passes rely."""
    known = elem.bytes
    size: VReg | None = None
    if any(int(literal) >= EXTENT for value, k in extents if (literal := s.parts.literal(value, k)) is not None):
        return GREATEST
    for value, k in extents:
        literal = s.parts.literal(value, k)
        if literal is not None and size is None:
            known = min(known * int(literal), GREATEST)
            continue
        extent = s.reg(value, k)
        size = extent if size is None and known == 1 else _saturating(s, s.integer(known) if size is None else size, extent)
    if size is None:
        return known
    for value, k in extents if len(extents) > 1 else []:  # another may be 0
        if s.parts.literal(value, k) is None:
            beyond = s.make("shr_i", s.reg(value, k), imm=EXTENT.bit_length() - 1, w=64)
            size = s.make("choose_i", size, s.integer(GREATEST), beyond, cc="ne", imm=0, w=64, vw=64)
    return size


def _saturating(s: Selector, a: VReg, b: VReg) -> VReg:
    high, low = s.new(), s.new()
    s.ins("mul_hi", high, low, a, b, w=64)
    return s.make("choose_i", low, s.integer(GREATEST), high, cc="ne", imm=0, w=64, vw=64)
