"""Calls: of functions of the module by their own convention, of kernels, support and the C library by C's, and of services.

A service takes a pointer to 64-bit slots with its arguments, behind which it leaves its results. The slots are the words of the frame that
calls pass: no service has other arguments. A narrow real and a bool travel to C as the integers that lie in memory.
"""

from __future__ import annotations

from tlc.backends.program import Extern, Foreign, Template
from tlc.backends.x86 import abi, narrow
from tlc.backends.x86.ops import Address
from tlc.backends.x86.registers import RAX, REAL_RESULTS
from tlc.backends.x86.selector import Selector, fits, incoming, outgoing
from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.types import Elem
from tlc.regalloc.ir import Bank, Reg, VReg
from tlc.ssa.ir import Function, Instr, Type, Value
from tlc.ssa.recipe import recipe_of
from tlc.ssa.tape import tape_of

# ---------------------------------------------------------------- own functions


def enter(s: Selector, function: Function) -> None:
    """The first instruction: parameters that anybody reads, from where the caller put them."""
    types = tuple(p.type for p in function.params)
    places, _ = abi.arguments(types)
    here: list[tuple[VReg, Reg]] = []
    words: list[tuple[VReg, int, abi.Word]] = []
    flat = [(p, k, w) for p in function.params for k, w in enumerate(abi.words(p.type))]
    for (p, k, w), place in zip(flat, places, strict=True):
        if not s.asked(p, k):
            continue
        if isinstance(place, Reg):
            here.append((s.reg(p, k), place))
        else:
            words.append((s.reg(p, k), place, w))
    s.fixed("enter", here)
    for v, place, w in words:
        _take(s, v, incoming(place), w)


def call(s: Selector, instr: Instr) -> None:
    types = tuple(v.type for v in instr.operands)
    places, count = abi.arguments(types)
    uses: list[tuple[VReg, Reg]] = []
    flat = [(v, k, w) for v in instr.operands for k, w in enumerate(abi.words(v.type))]
    for (v, k, w), place in zip(flat, places, strict=True):
        if isinstance(place, Reg):
            uses.append((s.reg(v, k), place))
        else:
            _pass(s, s.reg(v, k), outgoing(place), w)
    back, end = abi.results(tuple(r.type for r in instr.results), count)
    defs: list[tuple[VReg, Reg]] = []
    words: list[tuple[VReg, int, abi.Word]] = []
    results = [(r, k, w) for r in instr.results for k, w in enumerate(abi.words(r.type))]
    for (r, k, w), place in zip(results, back, strict=True):
        if not s.asked(r, k):
            continue
        if isinstance(place, Reg):
            defs.append((s.reg(r, k), place))
        else:
            words.append((s.reg(r, k), place, w))
    s.needs(end)
    s.fixed("call", defs, uses, symbol=f"f.{instr.attrs['callee']}")
    for register, place, w in words:
        _take(s, register, outgoing(place), w)


def give_back(s: Selector, function: Function, values: tuple[Value, ...]) -> None:
    """The end of a function."""
    _, count = abi.arguments(tuple(p.type for p in function.params))
    places, _ = abi.results(function.results, count)
    uses: list[tuple[VReg, Reg]] = []
    flat = [(v, k, w) for v in values for k, w in enumerate(abi.words(v.type))]
    for (v, k, w), place in zip(flat, places, strict=True):
        if isinstance(place, Reg):
            uses.append((s.reg(v, k), place))
        else:
            _pass(s, s.reg(v, k), incoming(place), w)
    s.fixed("ret", (), uses)


def _pass(s: Selector, v: VReg, mem: Address, w: abi.Word) -> None:
    s.ins("store" if w.bank is Bank.INT else "fstore", v, mem=mem, w=64 if w.bank is Bank.INT else w.width)


def _take(s: Selector, v: VReg, mem: Address, w: abi.Word) -> None:
    if w.bank is Bank.INT:
        s.ins("load", v, mem=mem, w=64, ext="z")
    else:
        s.ins("fload", v, mem=mem, w=w.width)


# ---------------------------------------------------------------- functions of C


def context(s: Selector) -> VReg:
    """The address of the context."""
    return s.make("lea", mem=Address(area="context"), w=64)


def call_c(s: Selector, symbol: str, args: list[VReg], result: VReg | None = None, checked: bool = False) -> None:
    """Call a function of C. Words that registers do not hold lie in the frame, reals as they are."""
    places, count = abi.c_arguments([a.bank for a in args])
    s.needs(count)
    uses = []
    for a, place in zip(args, places, strict=True):
        if isinstance(place, Reg):
            uses.append((a, place))
        else:
            _pass(s, a, outgoing(place), abi.Word(a.bank, 64))
    defs = [] if result is None else [(result, RAX if result.bank is Bank.INT else REAL_RESULTS[0])]
    s.fixed("call_c", defs, uses, symbol=symbol, checked=checked)


def _for_c(s: Selector, value: Value) -> VReg:
    """A scalar as C takes it: integers of 8 bits extended to 32."""
    register, elem = s.reg(value), value.type.elem
    if elem in NARROW:
        return narrow.to_bits(s, register, elem)
    if elem in (Elem.I8, Elem.U8) and s.parts.literal(value) is None:
        return s.make("sx" if elem.is_signed else "zx", register, from_=8, w=32)
    return register


def foreign(s: Selector, instr: Instr) -> None:
    result = instr.results[0].type.elem if instr.results else None
    f = Foreign(str(instr.attrs["symbol"]), tuple(v.type.elem for v in instr.operands), result)
    s.tables.foreign[f] = None
    args = [_for_c(s, v) for v in instr.operands]
    if result is None or not s.asked(instr.results[0]):
        call_c(s, f.name, args)
    elif result is Elem.BOOL:
        given = s.new()
        call_c(s, f.name, args, given)
        s.ins("zx", s.result(instr), given, from_=8, w=64)
    else:
        call_c(s, f.name, args, s.result(instr))


def run(s: Selector, instr: Instr) -> None:
    """A kernel: the context, outputs, inputs. A scalar output gets a word of the frame behind the words of the arguments."""
    from tlc.backends.x86.memory import load_element

    kernel = s.kernels[str(instr.attrs["kernel"])]
    outputs, inputs = instr.operands[: len(instr.results)], instr.operands[len(instr.results) :]
    banks = [Bank.INT] * (1 + len(outputs))
    banks += [Bank.REAL if v.type.rank == 0 and v.type.elem in (Elem.F32, Elem.F64) else Bank.INT for v in inputs]
    _, first = abi.c_arguments(banks)
    args = [context(s)]
    cells: list[tuple[Value, Address]] = []
    for y, r in zip(outputs, instr.results, strict=True):
        if y.type.rank:
            args.append(s.reg(y))
        else:
            cells.append((r, outgoing(first + len(cells))))
            args.append(s.make("lea", mem=cells[-1][1], w=64))
    args += [s.reg(v) if v.type.rank else _for_c(s, v) for v in inputs]
    s.needs(first + len(cells))
    call_c(s, f"k.{kernel.name}", args, checked=s.may_stop(kernel))
    for r, mem in cells:
        if s.asked(r):
            load_element(s, s.reg(r), mem, r.type.elem)


# ---------------------------------------------------------------- words of 64 bits


def put_words(s: Selector, value: Value, at: list[Address]) -> None:
    """Write the words of a value to 64-bit slots. What lies above a narrow scalar means nothing."""
    if value.type.rank:
        for k, mem in enumerate(at):
            literal = s.parts.literal(value, k)
            if isinstance(literal, int) and fits(literal):
                s.ins("store_i", mem=mem, imm=literal, w=64)
            else:
                s.ins("store", s.reg(value, k), mem=mem, w=64)
        return
    imm, elem = s.immediate(value), value.type.elem
    if imm is not None:
        s.ins("store_i", mem=at[0], imm=imm, w=64)
    elif elem in NARROW:
        narrow.store(s, s.reg(value), at[0], elem)
    elif elem.is_real:
        s.ins("fstore", s.reg(value), mem=at[0], w=elem.width)
    else:
        s.ins("store", s.reg(value), mem=at[0], w=64)


def take_words(s: Selector, value: Value, at: list[Address]) -> None:
    """Read the words of a value that somebody asked for from 64-bit slots."""
    from tlc.backends.x86.memory import load_element

    for k, mem in enumerate(at):
        if s.asked(value, k):
            load_element(s, s.reg(value, k), mem, Elem.I64 if value.type.rank else value.type.elem)


def count_words(type: Type) -> int:
    return 1 + type.rank


# ---------------------------------------------------------------- services


def service(s: Selector, name: str, number: int | None, instr: Instr, skip: int = 0) -> None:
    """Call a service with a row's number, if it has one, and the instruction's operands but for the first few."""
    at = 0
    if number is not None:
        s.ins("store_i", mem=outgoing(0), imm=number, w=64)
        at = 1
    for v in instr.operands[skip:]:
        put_words(s, v, [outgoing(at + k) for k in range(count_words(v.type))])
        at += count_words(v.type)
    s.needs(at + sum(count_words(r.type) for r in instr.results))
    call_c(s, f"service.{name}", [s.make("lea", mem=outgoing(0), w=64)], checked=True)
    for r in instr.results:
        take_words(s, r, [outgoing(at + k) for k in range(count_words(r.type))])
        at += count_words(r.type)


def op_format(s: Selector, instr: Instr) -> None:
    template = instr.attrs["template"]
    assert isinstance(template, tuple)
    s.tables.templates.append(Template(template, tuple(v.type for v in instr.operands)))
    service(s, "format", len(s.tables.templates) - 1, instr)


def op_extern(s: Selector, instr: Instr) -> None:
    types = tuple(v.type for v in instr.operands), tuple(r.type for r in instr.results)
    s.tables.externs.append(Extern(str(instr.attrs["name"]), *types, instr.span))
    service(s, "extern", len(s.tables.externs) - 1, instr)


def op_trap(s: Selector, instr: Instr) -> None:
    """It stands where its condition does not hold (`tensor/lower.py`)."""
    _, *values = instr.operands
    s.tables.externs.append(Extern("trap", tuple(v.type for v in values), (), instr.span, recipe_of(instr)))
    service(s, "extern", len(s.tables.externs) - 1, instr, skip=1)


def op_tick(s: Selector, instr: Instr) -> None:
    call_c(s, "tlc.tick", [context(s), *(s.reg(v) for v in instr.operands)], checked=True)


def op_due(s: Selector, instr: Instr) -> None:
    call_c(s, "tlc.due", [context(s)], s.reg(instr.result))


# ---------------------------------------------------------------- the tape


def op_push(s: Selector, instr: Instr) -> None:
    (value,) = instr.operands
    pointer = s.new()
    call_c(s, "tlc.push", [context(s), s.integer(tape_of(instr)), s.integer(8 * count_words(value.type))], pointer)
    site = s.site("memory", "there is no memory left for the tape of a derivative", (), instr.span)
    s.ins("check_i", pointer, cc="eq", imm=0, w=64, site=site, slots=())
    put_words(s, value, [Address(pointer, offset=8 * k) for k in range(count_words(value.type))])


def op_pop(s: Selector, instr: Instr) -> None:
    pointer, count = s.new(), count_words(instr.result.type)
    call_c(s, "tlc.pop", [context(s), s.integer(tape_of(instr)), s.integer(8 * count)], pointer)
    take_words(s, instr.result, [Address(pointer, offset=8 * k) for k in range(count)])
