"""The text form of machine IR: `print_module` writes what `parse_module` reads, before and after allocation.

    func @f.gcd slots 1 outgoing 2 allocated {                # what is 0 or not so is left out
    entry:
      %a.0 in rdi, %b.1 in rsi = enter
      jump -> loop(%a.0, %b.1)
    loop(%x.2: i, %y.3: i) depth 1:                           # `cold` may stand behind the depth
      br_i.64 %y.3 {cc = "eq", imm = 0} -> done, next         # op . width  uses {attributes} -> successors
    next depth 1:
      %q.4, %r.5 = idiv.64 %x.2, %y.3                         # results = op ...
      %v.6 = load.32 [%x.2 + %r.5*4 + 16] {ext = "z"}         # an address, its registers in place
      check.64 %r.5, %y.3, late %r.5 any {cc = "ae", site = 3, slots = (None,)}
      jump -> loop(%y.3, %r.5)
    done:
      ret %x.2 in rdx
    }

An operand is `[late|early] %name.number [@place] [constraint]`. The place is a register or `slot3`. The constraint (`any`, `register`,
`in rax`, `over 1`) and the time stand there only where they differ from what the op's row says; behind the row's operands
from a register that is used early or defined late, of a `pmove` from `any`. A definition of a real that no row and no register tells from
an integer has `: r`. An address begins with a register or an area; its index has a scale. `clobbers (rax, ...)` stands there where it is
not what the row says, less the definitions.

The number is the identity of a virtual register, the name a hint; text may leave the number out. Attributes are Python literals, `#`
begins a comment. Operands begin on the line of their op; other line ends mean nothing. Spans are not kept: parsed instructions have places
in the text.
"""

from __future__ import annotations

import json
import re

from tlc.frontend.source import Source, Span
from tlc.regalloc.ir import (
    ANY,
    REGISTER,
    Attr,
    Bank,
    Block,
    Constraint,
    Fixed,
    Function,
    Inst,
    Mem,
    Module,
    Operand,
    Place,
    Reg,
    Register,
    Reuse,
    Slot,
    VReg,
)
from tlc.regalloc.target import Kind, Row, Spec, Target
from tlc.ssa.tokens import Token, Tokens, fail, near, unquote

AREAS = ("context", "incoming", "outgoing")

# ---------------------------------------------------------------- printing


def print_module(module: Module, target: Target) -> str:
    """All functions in order."""
    return "\n".join(print_function(f, target) for f in module.functions.values())


def print_function(function: Function, target: Target) -> str:
    """One function. Broken machine IR prints too."""
    printer = _Printer(target, function)
    lines = [printer.head()]
    for block in function.blocks:
        lines.append(printer.block(block))
        lines += [f"  {printer.inst(i)}" for i in block.insts]
    return "\n".join([*lines, "}", ""])


def print_inst(inst: Inst, target: Target) -> str:
    """One instruction, successors by their own names."""
    return _Printer(target, None).inst(inst)


def print_vreg(v: VReg) -> str:
    name = re.sub(r"\W", "_", v.name)
    if name[:1].isdigit():
        name = f"_{name}"
    return f"%{name}.{v.number}" if name else f"%{v.number}"


class _Printer:
    def __init__(self, target: Target, function: Function | None) -> None:
        self.rows = target.rows
        self.function = function
        self.labels: dict[Block, str] = {}
        taken: set[str] = set()
        for block in function.blocks if function else ():
            hint = re.sub(r"(\.\d*)+$", "", re.sub(r"[^\w.]", "_", block.name))
            hint = label = hint if re.match(r"[^\W\d]", hint) else "block"
            k = 0
            while label in taken:
                k += 1
                label = f"{hint}.{k}"
            taken.add(label)
            self.labels[block] = label

    def head(self) -> str:
        f = self.function
        assert f is not None
        name = f.name if re.fullmatch(r"[A-Za-z_][\w.]*", f.name) else json.dumps(f.name, ensure_ascii=False)
        facts = [f" slots {f.slots}"] * bool(f.slots) + [f" outgoing {f.outgoing}"] * bool(f.outgoing) + [" allocated"] * f.allocated
        return f"func @{name}{''.join(facts)} {{"

    def block(self, block: Block) -> str:
        params = ", ".join(f"{print_vreg(p)}: {p.bank.value}" for p in block.params)
        facts = f" depth {block.depth}" * bool(block.depth) + " cold" * block.cold
        return f"{self.labels[block]}{f'({params})' * bool(params)}{facts}:"

    def inst(self, inst: Inst) -> str:
        row = self.rows.get(inst.op)
        mem = inst.attrs.get("mem")
        address = {mem.base, mem.index} if isinstance(mem, Mem) else set()
        defs, uses, bracketed = [], [], not isinstance(mem, Mem)
        for k, o in enumerate(inst.operands):
            if o.is_def:
                defs.append(self.operand(o, row, k))
                continue
            if not bracketed and (row is None or k >= len(row.operands)):
                assert isinstance(mem, Mem)
                uses.append(self.address(mem, inst, row))
                bracketed = True
            if k not in address:
                uses.append(self.operand(o, row, k))
        if not bracketed:
            assert isinstance(mem, Mem)
            uses.append(self.address(mem, inst, row))
        text = f"{', '.join(defs)} = " * bool(defs) + inst.op
        if "w" in inst.attrs:
            text += f".{inst.attrs['w']}"
        if uses:
            text += f" {', '.join(uses)}"
        attrs = ", ".join(f"{k} = {_literal(inst.attrs[k], k)}" for k in sorted(inst.attrs) if k not in ("w", "mem"))
        if attrs:
            text += f" {{{attrs}}}"
        if row is not None and inst.clobbers != _clobbers(row, inst.operands):
            text += f" clobbers ({', '.join(map(str, inst.clobbers))})"
        if inst.targets:
            text += f" -> {', '.join(map(self.target, inst.targets))}"
        return text

    def target(self, target: tuple[Block, tuple[VReg, ...]]) -> str:
        block, args = target
        return self.labels.get(block, block.name or "?") + (f"({', '.join(map(print_vreg, args))})" if args else "")

    def operand(self, o: Operand, row: Row | None, position: int) -> str:
        spec = _spec(row, position, o.is_def)
        text = print_vreg(o.vreg)
        if o.late != spec.late:
            text = f"{'late' if o.late else 'early'} {text}"
        if o.place is not None:
            text += f"@{o.place}"
        if o.constraint != spec.constraint:
            text += f" {_constraint(o.constraint)}"
        known = spec.bank is not None or isinstance(o.constraint, Fixed)
        return text + ": r" * (o.is_def and not known and o.vreg.bank is Bank.REAL)

    def address(self, mem: Mem, inst: Inst, row: Row | None) -> str:
        terms = [mem.area] if mem.area else []
        if mem.base is not None:
            terms.append(self.operand(inst.operands[mem.base], row, mem.base))
        if mem.index is not None:
            terms.append(f"{self.operand(inst.operands[mem.index], row, mem.index)}*{mem.scale}")
        text = " + ".join(terms) or "0"
        offset = f" {'+' if mem.offset > 0 else '-'} {abs(mem.offset)}" if mem.offset else ""
        return f"[{text}{offset}]"


def _constraint(c: Constraint) -> str:
    match c:
        case Fixed(reg):
            return f"in {reg}"
        case Reuse(k):
            return f"over {k}"
        case Register():
            return "register"
    return "any"


def _spec(row: Row | None, position: int, is_def: bool) -> Spec:
    """What an operand is unless its text says otherwise."""
    if row is not None and position < len(row.operands):
        return row.operands[position]
    return Spec(None, is_def, ANY if row is not None and row.kind is Kind.PMOVE else REGISTER, late=is_def)


def _clobbers(row: Row, operands: list[Operand]) -> tuple[Reg, ...]:
    """What an instruction destroys unless its text says otherwise."""
    defined = {o.constraint.reg for o in operands if o.is_def and isinstance(o.constraint, Fixed)}
    return tuple(r for r in row.clobbers if r not in defined)


def _literal(value: Attr, name: str = "") -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return hex(value) if name == "bits" and isinstance(value, int) else repr(value)


# ---------------------------------------------------------------- parsing


_TOKENS = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)
      | (?P<value>%\w[\w.]*)
      | (?P<function>@"(?:[^"\\\n]|\\.)*"|@[A-Za-z_][\w.]*)
      | (?P<number>0x[0-9a-fA-F]+|\d+)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<name>[^\W\d]\w*(?:\.\w+)*)
      | (?P<punctuation>->|[{}()\[\]:,=+*-])""",
    re.VERBOSE,
)

_NAMED_LITERALS: dict[str, Attr] = {"True": True, "False": False, "None": None}
_VALUE = re.compile(r"%(?:([^\W\d]\w*)\.)?(\d+)|%([^\W\d]\w*)")


def parse_module(text: str, target: Target, path: str = "<text>") -> Module:
    """Read a module; raises `CompileError` at the first mistake, with its place. What it means is for the verifier."""
    return _Parser(Source(path, text), target).module()


class _Parser(Tokens):
    def __init__(self, source: Source, target: Target) -> None:
        super().__init__(source, _TOKENS)
        self.target = target
        # Of one function:
        self.values: dict[str, VReg] = {}
        self.mentions: dict[VReg, Token] = {}  # the first of each
        self.banks: dict[VReg, Bank] = {}  # as far as definitions and rows tell
        self.guesses: dict[VReg, Bank] = {}  # as uses tell
        self.copies: list[tuple[VReg, VReg]] = []  # of one bank
        self.blocks: dict[str, Block] = {}
        self.row: Row | None = None  # of the instruction
        self.places: dict[str, Span] = {}  # of labels that are jumped to

    # ------------------------------------------------------------ tokens

    def word(self, text: str) -> bool:
        if self.token.kind == "name" and self.token.text == text:
            self.at += 1
            return True
        return False

    def number(self, what: str = "a number") -> int:
        return _int(self.expect("number", what).text)

    # ------------------------------------------------------------ structure

    def module(self) -> Module:
        module = Module()
        while self.token.kind != "end":
            name = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
            f = self.function()
            if f.name in module.functions:
                fail(name.span, f"function `{f.name}` is defined twice")
            module.functions[f.name] = f
        return module

    def function(self) -> Function:
        start = self.token
        if not self.word("func"):
            fail(start.span, f"expected `func`, found `{start.text}`")
        token = self.expect("function", "a function's name")
        f = Function(unquote(token, 1) if token.text.startswith('@"') else token.text[1:], span=start.span.to(token.span))
        self.values, self.mentions, self.banks, self.guesses, self.copies, self.blocks, self.places = {}, {}, {}, {}, [], {}, {}
        while not self.accept("{"):
            if self.word("slots"):
                f.slots = self.number()
            elif self.word("outgoing"):
                f.outgoing = self.number()
            elif self.word("allocated"):
                f.allocated = True
            else:
                fail(self.token.span, f"expected `{{`, found `{self.token.text}`")
        while not self.accept("}"):
            f.blocks.append(self.block(f))
        if not f.blocks:
            fail(f.span, "a function has a block")
        self.resolve(f)
        return f

    def label(self) -> tuple[Token, Block]:
        token = self.expect("name", "a block's label")
        return token, self.blocks.setdefault(token.text, Block(token.text))

    def block(self, f: Function) -> Block:
        token, block = self.label()
        if block in f.blocks:
            fail(token.span, f"block `{token.text}` is defined twice")
        if self.accept("("):
            while not self.accept(")"):
                param = self.expect("value", "a parameter")
                self.expect(":")
                v = self.vreg(param)
                self.bank(v, self.bank_name(), param.span)
                block.params.append(v)
                self.comma(")")
        if self.word("depth"):
            block.depth = self.number()
        block.cold = self.word("cold")
        self.expect(":")
        while self.token.kind != "}" and not self.at_label():
            if self.token.kind == "end":
                fail(self.token.span, "expected an instruction or `}`, found the end of the text")
            block.insts.append(self.inst())
        return block

    def at_label(self) -> bool:
        """Whether a block begins here: a name, perhaps parameters, `depth` and `cold`, then a colon."""
        if self.token.kind != "name":
            return False
        k = self.at + 1
        if self.tokens[k].kind == "(":
            while self.tokens[k].kind not in (")", "end"):
                k += 1
            k += 1
        while k < len(self.tokens) and self.tokens[k].text in ("depth", "cold"):
            k += 2 if self.tokens[k].text == "depth" else 1
        return k < len(self.tokens) and self.tokens[k].kind == ":"

    def inst(self) -> Inst:
        start = self.at
        defs: list[Operand] = []
        marks: list[tuple[Operand, Token]] = []
        if self.token.kind == "value" or self.token.text in ("late", "early"):
            # The row is behind the definitions: what an operand is by default is filled in when it is known.
            while not self.accept("="):
                self.row = self.peek_row()
                defs.append(self.operand(len(defs), True, marks))
                if self.token.kind != "=":
                    self.expect(",", "`,` or `=`")
        op = self.expect("name", "an instruction")
        name, _, width = op.text.partition(".")
        row = self.target.rows.get(name)
        if row is None:
            fail(op.span, f"there is no op `{name}`", near(name, list(self.target.rows)))
        self.row = row
        attrs: dict[str, Attr] = {}
        if width:
            if not width.isdigit():
                fail(op.span, f"`{width}` is not a width")
            attrs["w"] = int(width)
        operands = defs
        more = self.on_line_of(op)
        while more and (self.token.kind in ("value", "[") or self.token.text in ("late", "early")):
            if self.token.kind == "[":
                if "mem" in attrs:
                    fail(self.token.span, "a second address")
                attrs["mem"] = self.address(operands, marks)
            else:
                operands.append(self.operand(len(operands), False, marks))
            if not self.accept(","):
                break
        if self.accept("{"):
            while not self.accept("}"):
                key = self.expect("name", "an attribute's name")
                if key.text in attrs:
                    fail(key.span, f"attribute `{key.text}` is given twice")
                self.expect("=")
                attrs[key.text] = self.literal()
                self.comma("}")
        clobbers = _clobbers(row, operands)
        if self.word("clobbers"):
            clobbers = self.registers()
        targets: list[tuple[Block, tuple[VReg, ...]]] = []
        if self.accept("->"):
            targets.append(self.jump_target())
            while self.accept(","):
                targets.append(self.jump_target())
        self.learn(row, operands, marks)
        span = self.tokens[start].span.to(self.tokens[self.at - 1].span)
        return Inst(name, operands, attrs, clobbers, targets, span)

    def on_line_of(self, token: Token) -> bool:
        source = token.span.source
        return "\n" not in source.text[token.span.end : self.token.span.start]

    def peek_row(self) -> Row | None:
        """The row of the op behind the definitions."""
        k = self.at
        while self.tokens[k].kind not in ("=", "end"):
            k += 1
        name = self.tokens[min(k + 1, len(self.tokens) - 1)].text.partition(".")[0]
        return self.target.rows.get(name)

    def jump_target(self) -> tuple[Block, tuple[VReg, ...]]:
        token, block = self.label()
        self.places.setdefault(token.text, token.span)
        args: list[VReg] = []
        if self.accept("("):
            while not self.accept(")"):
                args.append(self.vreg(self.expect("value", "an argument")))
                self.comma(")")
        return block, tuple(args)

    def registers(self) -> tuple[Reg, ...]:
        out: list[Reg] = []
        self.expect("(")
        while not self.accept(")"):
            out.append(self.register())
            self.comma(")")
        return tuple(out)

    def comma(self, end: str) -> None:
        """Between the elements of a list that ends in `end`."""
        if self.token.kind != end:
            self.expect(",", f"`,` or `{end}`")

    # ------------------------------------------------------------ operands

    def operand(self, position: int, is_def: bool, marks: list[tuple[Operand, Token]]) -> Operand:
        spec = _spec(self.row, position, is_def)
        late = True if self.word("late") else False if self.word("early") else spec.late
        token = self.expect("value", "a virtual register")
        o = Operand(self.vreg(token), is_def, spec.constraint, late)
        marks.append((o, token))
        if self.token.kind == "function":  # `@rax` looks like one
            o.place = self.place(self.next())
        if self.word("any"):
            o.constraint = ANY
        elif self.word("register"):
            o.constraint = REGISTER
        elif self.word("in"):
            o.constraint = Fixed(self.register())
        elif self.word("over"):
            o.constraint = Reuse(self.number("the position of a use"))
        if is_def and self.accept(":"):
            self.bank(o.vreg, self.bank_name(), token.span)
        return o

    def address(self, operands: list[Operand], marks: list[tuple[Operand, Token]]) -> Mem:
        self.expect("[")
        base: int | None = None
        index: int | None = None
        scale, offset, area = 1, 0, ""
        sign = 1
        while True:
            token = self.token
            if token.kind == "number":
                offset += sign * self.number()
            elif sign < 0:
                fail(token.span, f"expected a number, found `{token.text}`")
            elif token.kind == "name" and token.text in AREAS and not area and base is None:
                area = self.next().text
            elif token.kind == "value" or token.text in ("late", "early"):
                operands.append(self.operand(len(operands), False, marks))
                if self.accept("*"):
                    if index is not None:
                        fail(token.span, "an address has one index")
                    index, scale = len(operands) - 1, self.number("a scale")
                elif base is None and index is None and not area:
                    base = len(operands) - 1
                else:
                    fail(token.span, "an address has one base, and it stands first; an index has a scale")
            else:
                fail(token.span, f"expected a register, {', '.join(f'`{a}`' for a in AREAS)} or a number, found `{token.text}`")
            if self.accept("]"):
                return Mem(base, index, scale, offset, area)
            sign = -1 if self.token.kind == "-" else 1
            if not self.accept("-"):
                self.expect("+", "`+`, `-` or `]`")

    def place(self, token: Token) -> Place:
        name = token.text[1:]
        if m := re.fullmatch(r"slot(\d+)", name):
            return Slot(int(m[1]))
        if name not in self.target.registers:
            fail(token.span, f"there is no register `{name}`", near(name, list(self.target.registers)))
        return self.target.registers[name]

    def register(self) -> Reg:
        token = self.expect("name", "a register")
        if token.text not in self.target.registers:
            fail(token.span, f"there is no register `{token.text}`", near(token.text, list(self.target.registers)))
        return self.target.registers[token.text]

    def literal(self) -> Attr:
        token = self.next()
        match token.kind:
            case "-":
                return -self.number()
            case "number":
                return _int(token.text)
            case "string":
                return unquote(token)
            case "name" if token.text in _NAMED_LITERALS:
                return _NAMED_LITERALS[token.text]
            case "(":
                items: list[Attr] = []
                while not self.accept(")"):
                    items.append(self.literal())
                    self.comma(")")
                return tuple(items)
        fail(token.span, f"expected a literal, found `{token.text}`")

    # ------------------------------------------------------------ virtual registers

    def vreg(self, token: Token) -> VReg:
        m = _VALUE.fullmatch(token.text)
        if m is None:
            fail(token.span, f"`{token.text}` is not a virtual register", "write `%name.number`, `%number` or `%name`")
        key = m[2] or m[3]
        if m[2] is not None:
            key = str(int(m[2]))
        if key not in self.values:
            self.values[key] = VReg(int(m[2]) if m[2] is not None else -1, Bank.INT, m[1] or m[3] or "")
            self.mentions[self.values[key]] = token
        v = self.values[key]
        if v.name != (m[1] or m[3] or ""):
            fail(token.span, f"`{token.text}` is `{self.mentions[v].text}` elsewhere")
        return v

    def bank_name(self) -> Bank:
        token = self.expect("name", "`i` or `r`")
        if token.text not in ("i", "r"):
            fail(token.span, f"expected `i` (integer) or `r` (real), found `{token.text}`")
        return Bank(token.text)

    def bank(self, v: VReg, bank: Bank, span: Span) -> None:
        if self.banks.setdefault(v, bank) is not bank:
            fail(span, f"`{print_vreg(v)}` is an integer in one place and a real in another")

    def learn(self, row: Row, operands: list[Operand], marks: list[tuple[Operand, Token]]) -> None:
        """What an instruction tells about the banks of its registers: definitions for sure, uses where no definition does."""
        span = {o: token.span for o, token in marks}
        for k, o in enumerate(operands):
            spec = _spec(row, k, o.is_def)
            bank = spec.bank or (o.constraint.reg.bank if isinstance(o.constraint, Fixed) else None)
            if bank is not None and o.is_def:
                self.bank(o.vreg, bank, span[o])
            elif bank is not None:
                self.guesses.setdefault(o.vreg, bank)
            elif isinstance(o.place, Reg):
                self.guesses.setdefault(o.vreg, o.place.bank)
        if row.kind in (Kind.MOVE, Kind.PMOVE):
            defs, uses = ([o.vreg for o in operands if o.is_def is d] for d in (True, False))
            self.copies += zip(uses, defs, strict=False)

    def resolve(self, f: Function) -> None:
        """Banks and numbers, when all of a function is read."""
        for name, span in self.places.items():
            if self.blocks[name] not in f.blocks:
                fail(span, f"there is no block `{name}` in this function", near(name, [b.name for b in f.blocks]))
        for _, d in self.copies:
            self.banks.setdefault(d, Bank.INT)  # a copy without a mark is of an integer
        if f.allocated:  # what needed no move has no definition any more
            for u, d in self.copies:
                self.banks.setdefault(u, self.banks[d])
            self.banks = self.guesses | self.banks
        free = 1 + max((v.number for v in self.mentions), default=-1)
        for v, token in self.mentions.items():
            if v not in self.banks:
                fail(token.span, f"`{token.text}` is never defined", near(token.text, [print_vreg(x) for x in self.banks]))
            v.bank = self.banks[v]
            if v.number < 0:
                v.number, free = free, free + 1
        f.vregs = free


def _int(text: str) -> int:
    return int(text, 16 if text.startswith("0x") else 10)
