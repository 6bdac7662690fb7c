"""Prints functions of the host module that kernels apply: loops and branches on scalars, and what they do with tensors.

A scalar is a variable, a tensor a pointer with its extents. A function that cannot stop the program and gives one scalar returns it; any
other gives a status (0: fine) and its results through pointers. A failed check leaves its message in `tlc_message`. A value that is
used once stands where it is used; others get names, as in the source where it has some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from tlc.backends.c import control
from tlc.backends.c.calls import Callee, can_stop, returns_value
from tlc.backends.c.control import Item, Let, Line
from tlc.backends.c.helpers import Helpers
from tlc.backends.c.index import Indices
from tlc.backends.c.kernel import comment
from tlc.backends.c.scalar import emit, widened
from tlc.backends.c.variables import declarations, placed
from tlc.backends.c.words import PRODUCT, SUM, TYPES, UNARY, Names, Text, call, cast, choice, infix, literal
from tlc.frontend.diagnostics import CompileError, Diagnostic
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem
from tlc.ssa.calls import callee_of
from tlc.ssa.cfg import predecessors, reverse_postorder
from tlc.ssa.ir import I64, Block, Function, Instr, Terminator, Type, Value, number_of, walk
from tlc.ssa.tape import TAPES, tape_of
from tlc.tensor.graph import ir as graph
from tlc.tensor.kernel.ir import Kernel
from tlc.tensor.kernel.ir import Var as KernelVar

_LONG = 100
_WRITES = ("update", "store", "run", "call", "copy", "free")  # what may change or free the memory that a load reads

STOPPED = '''
_Thread_local char tlc_message[256];  /* why the last kernel stopped */

static int stopped(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(tlc_message, sizeof tlc_message, format, values);
  va_end(values);
  return 1;
}'''

ALLOCATE = '''
/* Memory for a tensor; NULL if there is none. */
static void *allocate(size_t size, int64_t cells) {
  if (cells < 0 || cells > INT64_C(0x1000000000000)) return NULL;
  return malloc(cells ? (size_t)cells * size : 1);
}'''

TAPE = '''
/* The tapes of derivatives: stacks of words. */
static _Thread_local struct { int64_t *words; size_t used, room; } tapes[TAPES];

static int push(int tape, int64_t word) {
  if (tapes[tape].used == tapes[tape].room) {
    size_t room = tapes[tape].room ? 2 * tapes[tape].room : 1024;
    int64_t *words = realloc(tapes[tape].words, room * sizeof *words);
    if (!words) return stopped("there is no memory left for the tape of a derivative");
    tapes[tape].words = words, tapes[tape].room = room;
  }
  tapes[tape].words[tapes[tape].used++] = word;
  return 0;
}

static int64_t pop(int tape) { return tapes[tape].words[--tapes[tape].used]; }'''.replace("TAPES", str(TAPES))


def print_function(
    function: Function, helpers: Helpers, callees: Mapping[str, Callee], kernels: Mapping[str, Kernel], kernel_names: Mapping[str, str]
) -> str:
    """The definition of one function."""
    return _Printer(function, helpers, callees, kernels, kernel_names).run()


def function_head(function: Function, helpers: Helpers, callees: Mapping[str, Callee]) -> str:
    """Its declaration, without the semicolon."""
    return _Printer(function, helpers, callees, {}, {}).head()


@dataclass
class _Printer:
    function: Function
    helpers: Helpers
    callees: Mapping[str, Callee]
    kernels: Mapping[str, Kernel]
    kernel_names: Mapping[str, str]
    names: Names = field(default_factory=Names)
    values: dict[Value, tuple[Text, ...]] = field(default_factory=dict)
    variables: list[tuple[str, str]] = field(default_factory=list)  # type and name of what is assigned
    messages: dict[Value, tuple[str, list[str]]] = field(default_factory=dict)  # strings: formats of `printf`, and what they show
    code: dict[Block, list[Item]] = field(default_factory=dict)
    conditions: dict[Block, Text] = field(default_factory=dict)
    here: list[Item] = field(default_factory=list)  # the statements of the block that is printed

    def __post_init__(self) -> None:
        f = self.function
        self.callee = self.callees[f.name]
        self.positions = _positions(f)
        self.indices = Indices(frozenset(), self.never, self.never)
        self.named_atoms: dict[str, graph.Expr] = {}
        self.writes = any(i.op in _WRITES for i in walk(f.body))
        self.into = predecessors(f.body)
        self.params = []
        for v in f.params:
            self.values[v] = self.parts_named(v)
            self.params += [f"{t} {n}" for t, n in zip(self.types(v.type, const=True), self.values[v], strict=True)]
        self.results = [self.names.of(f"result{k or ''}") for k in range(sum(1 + r.rank for r in f.results))]

    # ------------------------------------------------------------ the function

    def head(self) -> str:
        f = self.function
        if returns_value(f, self.callee):
            return f"static {self.helpers.type(f.results[0].elem)} {self.callee.name}({', '.join(self.params) or 'void'})"
        types = [t for r in f.results for t in self.types(r)]
        pointers = [f"{t.rstrip('*').rstrip()} {'*' * t.count('*')}*{n}" for t, n in zip(types, self.results, strict=True)]
        return f"static int {self.callee.name}({', '.join([*pointers, *self.params])})"

    def run(self) -> str:
        f = self.function
        order = reverse_postorder(f.body)
        labels = Names()
        self.labels = {b: labels.of(b.name or "block") for b in order}
        joined = [v for b in order[1:] if len(self.into[b]) != 1 for v in b.params]
        for v in joined:
            self.values[v] = self.parts_named(v)
            self.variables += [(t, str(n)) for t, n in zip(self.types(v.type), self.values[v], strict=True)]
        for b in order:  # in an order in which what a value is made of is known
            self.learn(b)
        items = control.structure(f.body, control.Code(self.code.__getitem__, self.edge, self.conditions.__getitem__))
        items, more = placed(items, {"pop", *(c.name for c in self.callees.values())})
        self.variables += more
        body = list(control.lines(items, self.labels.__getitem__))
        declared = [f"  {line}" for line in declarations(self.variables)]
        return "\n".join([*comment(f.span), f"{self.head()} {{", *declared, *body, "}"])

    def learn(self, block: Block) -> None:
        """Print a block, and pass on what it gives to blocks that it alone jumps to."""
        self.here = self.code.setdefault(block, [])
        for instr in block.instrs:
            self.instruction(instr)
        end = block.terminator
        match end.op:
            case "return":
                self.give_back(end)
            case "unreachable":
                self.put("__builtin_unreachable();", ends=True)
            case "branch":
                self.conditions[block] = self.one(end.own[0])
        for k, target in enumerate(end.targets):
            if len(self.into[target]) == 1:
                self.here = self.code.setdefault(target, [])
                for p, a in zip(target.params, end.args(k), strict=True):
                    self.values[p] = self.values[a]
                    if not p.type.rank and not _is_plain(self.one(a)):
                        self.named(p, self.one(a))

    def edge(self, block: Block, k: int) -> list[Item]:
        """The moves of an edge, as if they were made at once: what is still to be read is kept in a variable of its own."""
        end = block.terminator
        target = end.targets[k]
        if len(self.into[target]) == 1:
            return []
        moves = [
            (to.text, source.text, type)
            for p, a in zip(target.params, end.args(k), strict=True)
            for to, source, type in zip(self.values[p], self.values[a], self.types(p.type), strict=True)
            if to.text != source.text
        ]
        out: list[Item] = []
        while moves:
            free = next((m for m in moves if not any(_mentions(s, m[0]) for t, s, _ in moves if t != m[0])), None)
            if free is not None:
                out.append(Line(_assignment(free[0], free[1])))
                moves.remove(free)
                continue
            to, _, type = moves[0]
            kept = self.names.of(f"old_{to}")
            out.append(Let(type, kept, to))
            moves = [(t, re.sub(rf"\b{to}\b", kept, s) if t != to else s, y) for t, s, y in moves]
        return out

    # ------------------------------------------------------------ values

    def types(self, type: Type, const: bool = False) -> tuple[str, ...]:
        """The C types of a value's parts."""
        elem = self.helpers.type(type.elem)
        return (f"{'const ' if const else ''}{elem} *", *(["int64_t"] * type.rank)) if type.rank else (elem,)

    def parts_named(self, v: Value) -> tuple[Text, ...]:
        name = v.name or "v"
        if not v.type.rank:
            return (Text(self.names.of(name)),)
        return (Text(self.names.of(name)), *(Text(self.names.of(f"{name}_extent{k}")) for k in range(v.type.rank)))

    def one(self, v: Value) -> Text:
        (only,) = self.values[v]
        return only

    def never(self, *_: object) -> Text:
        raise AssertionError("positions are made of sums and products")

    def position(self, v: Value) -> graph.Expr:
        """An `i64` that elements are reached by: sums and products are seen through."""
        owner = v.owner
        number = number_of(v)
        if number is not None:
            return graph.const(number)
        if isinstance(owner, Instr) and v in self.positions:
            return graph.op(owner.op, *map(self.position, owner.operands))
        return self.atom(self.one(v))

    def atom(self, text: Text) -> graph.Expr:
        if re.fullmatch(r"-?\d+", text.text):
            return graph.const(int(text.text))
        found = self.named_atoms.get(text.text)
        if found is None:
            found = self.named_atoms[text.text] = graph.scalar(graph.Scalar(text.text))
            self.indices.texts[found] = text
        return found

    def at(self, e: graph.Expr) -> Text:
        return self.indices.print(self.indices.ranges.simplify(e))

    def put(self, text: str, ends: bool = False) -> None:
        self.here.append(Line(text, ends))

    def give(self, v: Value, text: Text) -> None:
        """A scalar result: where it is used once, in the same block, it stands there; else it gets a name."""
        owner = v.owner
        assert isinstance(owner, Instr)
        near = sum(v.uses.values()) == 1 and all(u.block is owner.block for u in v.uses if isinstance(u, Instr | Terminator))
        still = owner.op in SCALAR_OPS or not self.writes
        if _is_plain(text) or (near and still and len(text.text) <= _LONG):
            self.values[v] = (text,)
            return
        self.named(v, text)

    def named(self, v: Value, text: Text) -> None:
        """A scalar under a name of its own."""
        name = Text(self.names.of(v.name or "t"))
        self.here.append(Let(self.types(v.type)[0], name.text, text.text))
        self.values[v] = (name,)

    def give_back(self, end: Terminator) -> None:
        values = [t for v in end.own for t in self.values[v]]
        if returns_value(self.function, self.callee):
            self.put(f"return {values[0]};", ends=True)
            return
        for name, value in zip(self.results, values, strict=True):
            self.put(f"*{name} = {value};")
        self.put("return 0;", ends=True)

    # ------------------------------------------------------------ instructions

    def instruction(self, instr: Instr) -> None:
        if instr.op in SCALAR_OPS:
            if instr.result in self.positions:
                return
            operands = tuple((self.one(v), v.type.elem) for v in instr.operands)
            self.give(instr.result, emit(self.helpers, instr.op, instr.result.type.elem, operands))
            return
        method = getattr(self, f"op_{instr.op}", None)
        if method is None:
            raise unsupported(instr.op, instr.span)
        method(instr)

    def op_const(self, instr: Instr) -> None:
        elem = instr.result.type.elem
        if elem is Elem.STR:
            self.messages[instr.result] = (str(instr.attrs["value"]).replace("%", "%%"), [])
            return
        self.values[instr.result] = (literal(instr.attrs["value"], elem),)

    def op_dim(self, instr: Instr) -> None:
        axis = instr.attrs["axis"]
        assert isinstance(axis, int)
        self.values[instr.result] = (self.values[instr.operands[0]][1 + axis],)

    def op_stop_grad(self, instr: Instr) -> None:
        self.values[instr.result] = self.values[instr.operands[0]]

    def op_check(self, instr: Instr) -> None:
        cond, *values = instr.operands
        text, args = "", []
        for k, part in enumerate(re.split(r"\{(\d+)\}", str(instr.attrs["message"]))):
            shown, more = self.shown(values[int(part)], "", instr.span) if k % 2 else (part.replace("%", "%%"), [])
            text += shown
            args += more
        place = "" if instr.span.source is NOWHERE.source else f"{instr.span}: ".replace("%", "%%")
        stop = f"return {call('stopped', _string(place + text), *args)};"
        self.here.append(control.If(control.negated(self.one(cond)), [Line(stop, ends=True)], []))

    def op_format(self, instr: Instr) -> None:
        """The text of a message, as a format of `printf` with what it shows."""
        template = instr.attrs["template"]
        assert isinstance(template, tuple)
        leaves = iter(instr.operands)
        text, args = "", []
        for piece in template:
            shown, more = (piece.replace("%", "%%"), []) if isinstance(piece, str) else self.layout(piece[2], piece[1], leaves, instr.span)
            text += shown
            args += more
        self.messages[instr.result] = (text, args)

    def layout(self, layout: Any, spec: str, leaves: Iterator[Value], span: Span) -> tuple[str, list[str]]:
        if layout == "leaf":
            return self.shown(next(leaves), spec, span)
        parts = [self.layout(inner, spec, leaves, span) for inner in layout[-1]]
        names = [f"{n} = " if n else "" for n in layout[2]] if layout[0] == "struct" else [""] * len(parts)
        text = f"{layout[1] if layout[0] == 'struct' else ''}({', '.join(n + t for n, (t, _) in zip(names, parts, strict=True))})"
        return text, [a for _, args in parts for a in args]

    def shown(self, v: Value, spec: str, span: Span) -> tuple[str, list[str]]:
        """A value in a message. Tensors are not written out."""
        if v in self.messages:
            return self.messages[v]
        if v.type.rank:
            return "[..]", []
        if v.type.elem is Elem.STR:
            raise unsupported("a computed string", span)
        form = _FORMATS[v.type.elem]
        if re.fullmatch(r"\.\d+[efg]", spec) and v.type.elem.is_real:
            form = f"%{spec}"
        return form, [str(_shown(self.real(v), v.type.elem))]

    def real(self, v: Value) -> Text:
        """A scalar; a narrow real as the f32 that it is."""
        return widened(self.helpers, self.one(v), v.type.elem)

    def op_call(self, instr: Instr) -> None:
        callee = self.callees[callee_of(instr)]
        args = [t for v in instr.operands for t in self.values[v]]
        if not callee.can_stop and len(instr.results) == 1 and not instr.result.type.rank:
            self.named(instr.result, call(callee.name, *args))
            return
        pointers = []
        for r in instr.results:
            self.values[r] = self.parts_named(r)
            self.variables += [(t, str(n)) for t, n in zip(self.types(r.type), self.values[r], strict=True)]
            pointers += [Text(f"&{n}") for n in self.values[r]]
        text = call(callee.name, *pointers, *args)
        if callee.can_stop:
            self.here.append(control.If(text, [Line("return 1;", ends=True)], []))
        else:
            self.put(f"{text};")

    def op_run(self, instr: Instr) -> None:
        kernel = self.kernels[str(instr.attrs["kernel"])]
        outputs, inputs = instr.operands[: len(instr.results)], instr.operands[len(instr.results) :]
        args: list[Text] = []
        for y, r in zip(outputs, instr.results, strict=True):
            if y.type.rank:
                self.values[r] = self.values[y]
                args.append(self.values[y][0])
            else:
                self.values[r] = self.parts_named(r)
                self.variables.append((self.types(r.type)[0], str(self.one(r))))
                args.append(Text(f"&{self.one(r)}"))
        for p, v in zip(kernel.inputs, inputs, strict=True):
            if isinstance(p, KernelVar) or v.type.rank:
                args.append(self.values[v][0])
            else:
                args.append(Text(f"&({TYPES[v.type.elem]}){{{self.one(v)}}}"))
        text = call(self.kernel_names[kernel.name], *args)
        if can_stop(kernel, self.callees):
            self.here.append(control.If(text, [Line("return 1;", ends=True)], []))
        else:
            self.put(f"{text};")

    # ------------------------------------------------------------ memory

    def op_alloc(self, instr: Instr) -> None:
        extents = tuple(self.one(v) for v in instr.operands)
        if not instr.result.type.rank:
            self.values[instr.result] = (literal(0, instr.result.type.elem),)
            return
        self.values[instr.result] = (self.buffer(instr.result, extents, instr.span), *extents)

    def buffer(self, v: Value, extents: Sequence[Text], span: Span) -> Text:
        name = self.names.of(v.name or "buffer")
        self.helpers.add("allocate", ALLOCATE)
        elem = self.helpers.type(v.type.elem)
        self.variables.append((f"{elem} *", name))
        self.put(f"{name} = {call('allocate', f'sizeof({elem})', self.product(extents))};")
        message = _string(f"{span}: there is no memory for a tensor")
        self.here.append(control.If(Text(f"!{name}", UNARY), [Line(f"return stopped({message});", ends=True)], []))
        return Text(name)

    def product(self, extents: Sequence[Text]) -> Text:
        out = extents[0] if extents else Text("1")
        for e in extents[1:]:
            out = infix(out, "*", e, PRODUCT)
        return out

    def op_copy(self, instr: Instr) -> None:
        (source,), result = instr.operands, instr.result
        self.values[result] = self.copied(self.values[source], result, instr.span) if result.type.rank else self.values[source]

    def copied(self, source: tuple[Text, ...], result: Value, span: Span) -> tuple[Text, ...]:
        pointer = self.buffer(result, source[1:], span)
        self.move(pointer, source[0], result.type.elem, source[1:])
        return (pointer, *source[1:])

    def move(self, to: Text, source: Text, elem: Elem, extents: Sequence[Text]) -> None:
        size = infix(cast("size_t", self.product(extents)), "*", Text(f"sizeof({TYPES[elem]})"), PRODUCT)
        self.put(f"{call('memcpy', to, source, size)};")

    def op_free(self, instr: Instr) -> None:
        self.put(f"free({self.values[instr.operands[0]][0]});")

    def op_reshape(self, instr: Instr) -> None:
        source, result = instr.operands[0], instr.result
        extents = tuple(self.one(v) for v in instr.operands[1:])
        if result.type.rank and source.type.rank:
            self.values[result] = (self.values[source][0], *extents)
        elif result.type.rank:
            pointer = self.buffer(result, extents, instr.span)
            self.put(f"*{pointer} = {self.one(source)};")
            self.values[result] = (pointer, *extents)
        elif source.type.rank:
            self.named(result, Text(f"*{self.values[source][0]}", UNARY))
        else:
            self.values[result] = self.values[source]

    def op_load(self, instr: Instr) -> None:
        x, at = instr.operands
        self.give(instr.result, Text(f"{self.values[x][0]}[{self.at(self.position(at))}]"))

    def op_store(self, instr: Instr) -> None:
        x, at, v = instr.operands
        self.put(f"{self.values[x][0]}[{self.at(self.position(at))}] = {self.one(v)};")
        self.values[instr.result] = self.values[x]

    def op_index(self, instr: Instr) -> None:
        x, *indices = instr.operands
        if not x.type.rank:
            self.values[instr.result] = self.values[x]
        elif instr.result.type.rank:
            rest = self.values[x][1 + len(indices) :]
            self.values[instr.result] = self.copied((self.part(x, indices), *rest), instr.result, instr.span)
        else:
            self.give(instr.result, Text(f"{self.values[x][0]}[{self.flat(x, indices)}]"))

    def op_view(self, instr: Instr) -> None:
        x, *words = instr.operands
        count = len(words) - instr.result.type.rank
        self.values[instr.result] = (self.pointer(instr.result, self.part(x, words[:count])), *map(self.one, words[count:]))

    def op_split(self, instr: Instr) -> None:
        x, *indices = instr.operands
        whole, part = instr.results
        self.values[whole] = self.values[x]
        self.values[part] = (self.pointer(part, self.part(x, indices)), *self.values[x][1 + len(indices) :])

    def op_join(self, instr: Instr) -> None:
        self.values[instr.result] = self.values[instr.operands[0]]

    def op_index_if(self, instr: Instr) -> None:
        cond, x, *indices = instr.operands
        element = Text(f"{self.values[x][0]}[{self.flat(x, indices)}]")
        self.give(instr.result, choice(self.one(cond), element, literal(0, x.type.elem)))

    def op_update(self, instr: Instr) -> None:
        x, *indices, v = instr.operands
        if not x.type.rank:
            self.values[instr.result] = self.values[v]
            return
        if v.type.rank:
            self.move(self.part(x, indices), self.values[v][0], v.type.elem, self.values[v][1:])
        else:
            self.put(f"{self.values[x][0]}[{self.flat(x, indices)}] = {self.one(v)};")
        self.values[instr.result] = self.values[x]

    def flat(self, x: Value, indices: Sequence[Value]) -> Text:
        """The position of an element, or of the first one of a part."""
        _, *extents = self.values[x]
        at = graph.const(0)
        for k, extent in enumerate(extents):
            index = self.position(indices[k]) if k < len(indices) else graph.const(0)
            at = graph.op("add", graph.op("mul", at, self.atom(extent)), index)
        return self.at(at)

    def part(self, x: Value, indices: Sequence[Value]) -> Text:
        at = self.flat(x, indices)
        return self.values[x][0] if at.text == "0" else infix(self.values[x][0], "+", at, SUM)

    def pointer(self, v: Value, at: Text) -> Text:
        """A name for where a part of a tensor begins."""
        name = self.names.of(v.name or "part")
        self.variables.append((f"{self.helpers.type(v.type.elem)} *", name))
        self.put(f"{name} = {at};")
        return Text(name)

    # ------------------------------------------------------------ the tape

    def op_push(self, instr: Instr) -> None:
        self.helpers.add("push", TAPE)
        v = instr.operands[0]
        if v.type.rank:
            raise unsupported("a tensor on the tape of a derivative", instr.span)
        full = call("push", str(tape_of(instr)), self.word(self.one(v), v.type.elem))
        self.here.append(control.If(full, [Line("return 1;", ends=True)], []))

    def op_pop(self, instr: Instr) -> None:
        self.helpers.add("push", TAPE)
        elem = instr.result.type.elem
        if instr.result.type.rank:
            raise unsupported("a tensor on the tape of a derivative", instr.span)
        self.named(instr.result, self.from_word(call("pop", str(tape_of(instr))), elem))

    def word(self, a: Text, elem: Elem) -> Text:
        """A scalar as 64 bits."""
        if elem in (Elem.F32, Elem.F64):
            return call(self.helpers.use("bitcast", Elem.I32 if elem is Elem.F32 else Elem.I64, elem), a)
        return cast("int64_t", a) if elem is Elem.KEY else a

    def from_word(self, a: Text, elem: Elem) -> Text:
        if elem is Elem.F64:
            return call(self.helpers.use("bitcast", elem, Elem.I64), a)
        return call(self.helpers.use("bitcast", elem, Elem.I32), cast("int32_t", a)) if elem is Elem.F32 else cast(TYPES[elem], a)


def unsupported(what: str, span: Span) -> CompileError:
    return CompileError([Diagnostic("E0901", f"{what} in a function that a kernel applies, as C: not supported yet", span)])


_FORMATS = {
    Elem.BOOL: "%s", Elem.F32: "%.9g", Elem.F64: "%.17g", Elem.F16: "%.9g", Elem.BF16: "%.9g", Elem.KEY: "%lld", Elem.STR: "%lld",
    Elem.I8: "%lld", Elem.I32: "%lld", Elem.I64: "%lld", Elem.U8: "%lld", Elem.U32: "%lld",
}  # fmt: skip
assert set(_FORMATS) == set(Elem), "an element type has no format"


def _shown(a: Text, elem: Elem) -> Text:
    if elem is Elem.BOOL:
        return Text(f'{a.at(UNARY)} ? "true" : "false"')
    return cast("double", a) if elem.is_real else cast("long long", a)


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _positions(function: Function) -> set[Value]:
    """Sums and products that only say where elements lie."""
    found: set[Value] = set()
    for instr in reversed(list(walk(function.body))):
        if instr.op in ("add", "sub", "mul") and instr.result.type == I64 and instr.result.uses:
            users = [(u, k) for u in instr.result.uses for k, v in enumerate(u.operands) if v is instr.result]
            if all(isinstance(u, Instr) and _is_place(u, k, found) for u, k in users):
                found.add(instr.result)
    return found


def _is_place(user: Instr, k: int, found: set[Value]) -> bool:
    match user.op:
        case "load" | "store":
            return k == 1
        case "index" | "view" | "split":
            return k > 0
        case "update":
            return 0 < k < len(user.operands) - 1
        case "add" | "sub" | "mul":
            return user.result in found
        case _:
            return False


def _is_plain(text: Text) -> bool:
    """A name or a literal."""
    return re.fullmatch(r"-?[\w.]+", text.text) is not None


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _assignment(to: str, value: str) -> str:
    m = re.fullmatch(rf"{re.escape(to)} ([-+*/]) ([\w.]+)", value)
    return f"{to} {m[1]}= {m[2]};" if m else f"{to} = {value};"
