"""Words of values, and which of them are the same word.

A tensor is the address of its buffer and its extents, each a word of its own. Most ops pass words on: `update` and `store` give the
tensor that they took, `dim` gives an extent, an integer that is cut to fewer bits stays in its register. `Parts.of` follows a word back
to where it is made: to the instruction that computes it, a constant, or a block parameter.

A block parameter is a word of its own only if different words reach it. In a loop that changes a tensor in place

    head(%a: i64[_], %i: i64):  ..  %b = store %a, %i, %x;  jump head(%b, %j)

the address and the extent of `%a` are those that entered the loop, so neither is moved in it. Found optimistically, as constants are by
Wegman and Zadeck (1991): a parameter is what first reaches it until something else does.
"""

from __future__ import annotations

from tlc.backends.x86.abi import words
from tlc.frontend.types import INTS, Elem
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Type, Value

Part = tuple[Value, int]  # a value and which of its words

_WHOLE = (*INTS, Elem.KEY)


class Parts:
    """The words of one function; a snapshot."""

    def __init__(self, function: Function) -> None:
        self.order = reverse_postorder(function.body)
        self._made: dict[Part, Part] = {}
        self._constants: dict[tuple[object, ...], Part] = {}
        self._same: dict[Part, Part] = {}  # parameters of blocks, with the word that they are
        self._find_same(function)

    def of(self, value: Value, k: int = 0) -> Part:
        """Where a word is made: its value's owner is a block, or an instruction that computes this word."""
        part = self._origin((value, k))
        while part in self._same and self._same[part] != part:
            part = self._same[part]
        return part

    def source(self, value: Value) -> Value | None:
        """What a scalar is, where its instruction only passes it on."""
        found = _source((value, 0))
        return None if found is None else found[0]

    def maker(self, value: Value) -> Instr | None:
        """The instruction that computes a scalar, behind all that only pass it on."""
        owner = self.of(value)[0].owner
        return owner if isinstance(owner, Instr) else None

    def literal(self, value: Value, k: int = 0) -> bool | int | float | str | None:
        """The constant that a word is, if it is one; an integer in the range of the value's own type."""
        found = self.of(value, k)[0].owner
        if not isinstance(found, Instr) or found.op != "const":
            return None
        constant = found.attrs["value"]
        assert isinstance(constant, bool | int | float | str)
        if isinstance(constant, int) and not value.type.rank and value.type.elem in _WHOLE:
            return wrapped(int(constant), value.type.elem)
        return constant

    def _origin(self, part: Part) -> Part:
        """The word behind all instructions that pass it on."""
        passed: list[Part] = []
        while part not in self._made:
            following = _source(part)
            if following is None:
                self._made[part] = self._canonical(part)
                break
            passed.append(part)
            part = following
        made = self._made[part]
        for p in passed:
            self._made[p] = made
        return made

    def _canonical(self, part: Part) -> Part:
        """One part for all constants of equal type and value."""
        owner = part[0].owner
        if not isinstance(owner, Instr) or owner.op != "const":
            return part
        return self._constants.setdefault((part[0].type, repr(owner.attrs["value"])), part)

    def _find_same(self, function: Function) -> None:
        arriving: dict[Part, list[Part]] = {}
        for block in self.order:
            for target, args in block.terminator.edges:
                for p, a in zip(target.params, args, strict=True):
                    for k in range(len(words(p.type))):
                        arriving.setdefault((p, k), []).append(self._origin((a, k)))
        for p in function.params:  # what the caller passes
            for k in range(len(words(p.type))):
                self._same[p, k] = (p, k)
        changed = True
        while changed:
            changed = False
            for part, sources in arriving.items():
                now = self._same.get(part)
                if now == part:
                    continue
                found = {self.of(*s) for s in sources if not self._unknown(s)} - {part}
                if not found:
                    continue
                new = found.pop() if len(found) == 1 else part
                if new != now:
                    self._same[part] = new
                    changed = True

    def _unknown(self, part: Part) -> bool:
        """A parameter that nothing known has reached yet."""
        while isinstance(part[0].owner, Block):
            if part not in self._same:
                return True
            if self._same[part] == part:
                return False
            part = self._same[part]
        return False


def wrapped(value: int, elem: Elem) -> int:
    """An integer in the range of its type, modulo its width."""
    value &= (1 << elem.width) - 1
    return value - (1 << elem.width) if elem.is_signed and value >> elem.width - 1 else value


def _source(part: Part) -> Part | None:
    """The word that this one is, where its instruction only passes it on."""
    value, k = part
    owner = value.owner
    if not isinstance(owner, Instr):
        return None
    match owner.op:
        case "dim":
            axis = owner.attrs["axis"]
            assert isinstance(axis, int)
            return owner.operands[0], 1 + axis
        case "update" if not value.type.rank:
            return owner.operands[-1], 0
        case "update" | "store" | "stop_grad":
            return owner.operands[0], k
        case "reshape":
            return _reshaped(owner, k)
        case "alloc":
            return (owner.operands[k - 1], 0) if k else None
        case "copy":
            return (owner.operands[0], k) if k or not value.type.rank else None
        case "run":
            return (owner.operands[owner.results.index(value)], k) if value.type.rank else None
        case "index" if not owner.operands[0].type.rank:
            return owner.operands[0], 0
        case "view":
            return (owner.operands[len(owner.operands) - value.type.rank + k - 1], 0) if k else None
        case "join":
            return owner.operands[0], k
        case "split" if value is owner.results[0]:
            return owner.operands[0], k
        case "index" | "split":
            return (owner.operands[0], len(owner.operands) - 1 + k) if k else None
        case "convert" | "bitcast" if _keeps_register(owner.operands[0].type, value.type):
            return owner.operands[0], 0
        case "convert" if value.type.elem in INTS and _is_load(owner.operands[0]) and owner.operands[0].type.elem in INTS:
            return owner.operands[0], 0  # loads extend to the whole register
        case "key_lo":
            return owner.operands[0], 0
    return None


def _reshaped(reshape: Instr, k: int) -> Part | None:
    source, result = reshape.operands[0], reshape.result
    if k:
        return reshape.operands[k], 0
    return (source, 0) if (source.type.rank > 0) == (result.type.rank > 0) else None


def _is_load(value: Value) -> bool:
    return isinstance(value.owner, Instr) and value.owner.op == "load"


def _keeps_register(source: Type, result: Type) -> bool:
    """Whether a scalar of one type is one of the other without an instruction. Bits above an integer's width mean nothing, but those above
    a bool are zero; a narrow real is held as an f32.
    """
    a, b = source.elem, result.elem
    if a.is_real or b.is_real:
        return a is b or (a in (Elem.F16, Elem.BF16) and b is Elem.F32)
    if a is b or a is Elem.BOOL:
        return True
    return b is not Elem.BOOL and b.width <= a.width
