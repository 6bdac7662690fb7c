"""Prints a function of the host module as LLVM IR.

- A scalar is a register. A tensor is a pointer and its extents, so `dim` costs nothing and `update` is a store.
- Block parameters become phis. A function gives a status besides its results (`backends/llvm/abi.py`); a `check` that fails leaves
  its site and its values in the context and returns status 1, and every caller passes that on.
- A long loop (`opt/polls.py`) looks at the stop flag of the context at its back edge, a recursive function at its entry at the limit
  of the stack.
- What only the world can do goes through the table of services in the context: a service takes a pointer to 64-bit slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tlc.backends.context import SERVICES, VALUES, Reason, offset
from tlc.backends.llvm import scalar
from tlc.backends.llvm.abi import c_param, c_result, function_symbol, kernel_symbol, parts, result_type
from tlc.backends.llvm.scalar import literal, register, storage
from tlc.backends.program import Extern, Foreign, Site, Tables, Template
from tlc.frontend.diagnostics import InternalError
from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.types import Elem
from tlc.opt.ranges import EXTENT
from tlc.ssa.cfg import reverse_postorder
from tlc.ssa.ir import Block, Function, Instr, Terminator, Type, Value
from tlc.ssa.recipe import recipe_of
from tlc.ssa.tape import tape_of
from tlc.tensor.kernel.calls import may_end_run
from tlc.tensor.kernel.ir import Kernel

_RARE = ', !prof !{!"branch_weights", i32 1048575, i32 1}'  # the first edge is nearly always taken


def print_function(function: Function, kernels: Mapping[str, Kernel], tables: Tables, recursive: bool, polled: set[Block]) -> str:
    """The definition of a function. What it refers to by number comes into the tables; `polled` are headers of loops whose back edges look
    at the stop flag.
    """
    return _Printer(function, kernels, tables, recursive, polled).run()


@dataclass
class _Printer:
    """One function. `values` are the operands (parts) of each SSA value; a phi's line is made when all are known."""

    function: Function
    kernels: Mapping[str, Kernel]
    tables: Tables
    recursive: bool
    polled: set[Block]  # headers of loops whose back edges look at the stop flag
    lines: list[str] = field(default_factory=list)
    values: dict[Value, tuple[str, ...]] = field(default_factory=dict)
    cold: list[str] = field(default_factory=list)  # blocks of failures, at the end
    cells: list[str] = field(default_factory=list)  # allocas
    incoming: dict[Block, list[tuple[str, tuple[Value, ...]]]] = field(default_factory=dict)
    label: str = "entry"
    count: int = 0
    slots: int = 0  # how many 64-bit slots services need at most

    # ------------------------------------------------------------ the function

    def run(self) -> str:
        f = self.function
        order = reverse_postorder(f.body)
        self.place = {b: k for k, b in enumerate(order)}
        params = ["ptr %ctx"]
        for p in f.params:
            self.values[p] = self.fresh(p.type)
            params += [f"{t} {n}" for t, n in zip(parts(p.type), self.values[p], strict=True)]
        for block in order[1:]:
            for v in block.params:
                self.values[v] = self.fresh(v.type)
        if self.recursive:
            self.check_stack()
        phis: dict[Block, int] = {}
        for block in order:
            if block is not order[0]:
                self.start(f"b{self.place[block]}")
                phis[block] = len(self.lines)
            for instr in block.instrs:
                self.instruction(instr)
            self.terminator(block.terminator)
        for block in reversed(order[1:]):
            self.lines[phis[block] : phis[block]] = self.phis(block)
        self.type = result_type(f.results)
        cells = [*self.cells, f"  %slots = alloca [{max(self.slots, 1)} x i64], align 8"]
        kind = "internal " if f.name != "main" else ""
        head = f"define {kind}{self.type} {function_symbol(f.name)}({', '.join(params)}) nounwind {{"
        end = f"stopped:\n  ret {self.type} {self.stopped_value()}"
        return "\n".join([head, "entry:", *cells, *self.lines, *self.cold, end, "}", ""])

    def stopped_value(self) -> str:
        rest = "".join(f", {t} zeroinitializer" for r in self.function.results for t in parts(r))
        return f"{{ i32 1{rest} }}"

    def phis(self, block: Block) -> list[str]:
        out = []
        for k, v in enumerate(block.params):
            for j, (name, type) in enumerate(zip(self.values[v], parts(v.type), strict=True)):
                pairs = ", ".join(f"[{self.values[args[k]][j]}, %{label}]" for label, args in self.incoming[block])
                out.append(f"  {name} = phi {type} {pairs}")
        return out

    def is_last(self, call: Instr) -> bool:
        """Whether the function returns what the call gives, and nothing comes between."""
        assert call.block is not None
        end = call.block.terminator
        return call.block.instrs[-1] is call and end.op == "return" and end.operands == call.results

    def check_stack(self) -> None:
        """At the entry of a recursive function: one look at the limit of the stack, which who asks for a stop sets beyond all
        addresses. (The load is atomic because LLVM may make a loop of the recursion.)
        """
        frame = self.ins("call ptr @llvm.frameaddress.p0(i32 0)")
        here = self.ins(f"ptrtoint ptr {frame} to i64")
        limit = self.ins(f"load atomic i64, ptr {self.field('stack_limit')} monotonic, align 8")
        deep = Site("recursion", f"the recursion of `{self.function.name}` is too deep", (), self.function.span)
        self.require(self.ins(f"icmp uge i64 {here}, {limit}"), deep, (), stops=True)

    # ------------------------------------------------------------ lines

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def fresh(self, type: Type) -> tuple[str, ...]:
        return tuple(self.name() for _ in parts(type))

    def ins(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def new_label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def at(self, pointer: str, bytes: int) -> str:
        """An address some bytes behind another."""
        return self.ins(f"getelementptr i8, ptr {pointer}, i64 {bytes}")

    def field(self, name: str) -> str:
        return self.at("%ctx", offset(name))

    def cell(self, type: str) -> str:
        """Room for one value on the stack, made once a call."""
        name = self.name()
        self.cells.append(f"  {name} = alloca {type}, align 8")
        return name

    def one(self, value: Value) -> str:
        """The operand of a scalar."""
        (only,) = self.values[value]
        return only

    # ------------------------------------------------------------ stopping

    def require(self, cond: str, site: Site, values: tuple[str, ...], stops: bool = False) -> None:
        """Stop at `site` unless `cond` holds; `values` are 64-bit operands for its message. With `stops` it may be for the stop flag."""
        number = len(self.tables.sites)
        self.tables.sites.append(site)
        fine, failed = self.new_label("fine"), self.new_label("failed")
        self.put(f"br i1 {cond}, label %{fine}, label %{failed}{_RARE}")
        self.start(fine)
        here, self.lines = self.lines, [f"{failed}:"]
        reason = str(int(Reason.CHECK))
        if stops:
            flag = self.ins(f"load i32, ptr {self.field('stop')}")
            reason = self.ins(f"select i1 {self.ins(f'icmp eq i32 {flag}, 0')}, i32 {reason}, i32 {int(Reason.STOPPED)}")
        self.put(f"store i32 {reason}, ptr {self.field('reason')}")
        self.put(f"store i64 {number}, ptr {self.field('site')}")
        for k, v in enumerate(values):
            self.put(f"store i64 {v}, ptr {self.at('%ctx', offset('values') + 8 * k)}")
        self.put("br label %stopped")
        self.cold += self.lines
        self.lines = here

    def require_status(self, status: str) -> None:
        """Go on only if a call went well."""
        fine = self.new_label("fine")
        self.put(f"br i1 {self.ins(f'icmp eq i32 {status}, 0')}, label %{fine}, label %stopped{_RARE}")
        self.start(fine)

    def poll(self) -> None:
        """Look at the stop flag."""
        flag = self.ins(f"load atomic i32, ptr {self.field('stop')} monotonic, align 4")
        go, halt = self.new_label("go"), self.new_label("halt")
        self.put(f"br i1 {self.ins(f'icmp eq i32 {flag}, 0')}, label %{go}, label %{halt}{_RARE}")
        self.start(go)
        here, self.lines = self.lines, [f"{halt}:"]
        self.put(f"store i32 {int(Reason.STOPPED)}, ptr {self.field('reason')}")
        self.put("br label %stopped")
        self.cold += self.lines
        self.lines = here

    # ------------------------------------------------------------ terminators

    def terminator(self, end: Terminator) -> None:
        long = any(self.place[t] <= self.place[self.block_of(end)] and t in self.polled for t in end.targets)
        if long:
            self.poll()
        loop = ", !llvm.loop !0" if long else ""
        match end.op:
            case "jump":
                ((target, args),) = end.edges
                self.put(f"br label %{self.edge(self.label, target, args)}{loop}")
            case "branch":
                (then, then_args), (other, other_args) = end.edges
                first = self.edge(self.label, then, then_args)
                between = self.new_label("edge") if other is then and then.params else ""
                second = self.edge(between or self.label, other, other_args)
                self.put(f"br i1 {self.one(end.own[0])}, label %{first}, label %{between or second}{loop}")
                if between:
                    self.start(between)
                    self.put(f"br label %{second}")
            case "return":
                self.give_back(end.own)
            case "unreachable":
                self.put("unreachable")
            case _:
                raise InternalError(f"`{end.op}` in host code", f"llvm, {self.function.name}")

    def block_of(self, end: Terminator) -> Block:
        assert end.block is not None
        return end.block

    def edge(self, source: str, target: Block, args: tuple[Value, ...]) -> str:
        self.incoming.setdefault(target, []).append((source, args))
        return f"b{self.place[target]}"

    def give_back(self, values: tuple[Value, ...]) -> None:
        type = result_type(self.function.results)
        out = self.ins(f"insertvalue {type} poison, i32 0, 0")
        k = 1
        for v in values:
            for text, part in zip(self.values[v], parts(v.type), strict=True):
                out = self.ins(f"insertvalue {type} {out}, {part} {text}, {k}")
                k += 1
        self.put(f"ret {type} {out}")

    # ------------------------------------------------------------ instructions

    def instruction(self, instr: Instr) -> None:
        if instr.op in SCALAR_OPS:
            operands = tuple((self.one(v), v.type.elem) for v in instr.operands)
            self.values[instr.result] = (scalar.emit(self, instr.op, instr.result.type.elem, operands),)
            return
        method = getattr(self, f"op_{instr.op}", None)
        if method is None:
            raise InternalError(f"`{instr.op}` in host code", f"llvm, {self.function.name} at {instr.span}")
        method(instr)

    def op_const(self, instr: Instr) -> None:
        value, elem = instr.attrs["value"], instr.result.type.elem
        self.values[instr.result] = (str(self.tables.string(str(value))) if elem is Elem.STR else literal(value, elem),)

    def op_dim(self, instr: Instr) -> None:
        axis = instr.attrs["axis"]
        assert isinstance(axis, int)
        self.values[instr.result] = (self.values[instr.operands[0]][1 + axis],)

    def op_check(self, instr: Instr) -> None:
        extra = instr.operands[1:]
        if len(extra) > VALUES:
            raise InternalError(f"a check with {len(extra)} values", f"llvm, {self.function.name} at {instr.span}")
        site = Site(str(instr.attrs["kind"]), str(instr.attrs["message"]), tuple(v.type.elem for v in extra), instr.span)
        self.require(self.one(instr.operands[0]), site, tuple(self.slot(self.one(v), v.type.elem) for v in extra))

    def op_call(self, instr: Instr) -> None:
        args = ["ptr %ctx"]
        for v in instr.operands:
            args += [f"{t} {n}" for t, n in zip(parts(v.type), self.values[v], strict=True)]
        type = result_type(tuple(r.type for r in instr.results))
        # `notail`: LLVM must not take a call for the last one because all that comes after it looks like failing alike
        call = "call" if self.is_last(instr) else "notail call"
        both = self.ins(f"{call} {type} {function_symbol(str(instr.attrs['callee']))}({', '.join(args)})")
        self.require_status(self.ins(f"extractvalue {type} {both}, 0"))
        k = 1
        for r in instr.results:
            self.values[r] = tuple(self.ins(f"extractvalue {type} {both}, {k + j}") for j in range(len(parts(r.type))))
            k += len(parts(r.type))

    def op_run(self, instr: Instr) -> None:
        kernel = self.kernels[str(instr.attrs["kernel"])]
        outputs, inputs = instr.operands[: len(instr.results)], instr.operands[len(instr.results) :]
        args = ["ptr %ctx"]
        cells: dict[Value, str] = {}
        for y, r in zip(outputs, instr.results, strict=True):
            if y.type.rank:
                self.values[r] = self.values[y]
                args.append(f"ptr {self.values[y][0]}")
            else:
                cells[r] = self.cell(storage(r.type.elem))
                args.append(f"ptr {cells[r]}")
        for v in inputs:
            args.append(f"{'ptr' if v.type.rank else register(v.type.elem)} {self.values[v][0]}")
        status = self.ins(f"call i32 {kernel_symbol(kernel.name)}({', '.join(args)})")
        if may_end_run(kernel):
            self.require_status(status)
        for r, cell in cells.items():
            self.values[r] = (self.load(cell, r.type.elem),)

    def op_alloc(self, instr: Instr) -> None:
        extents = tuple(self.one(v) for v in instr.operands)
        type = instr.result.type
        self.values[instr.result] = (self.buffer(type.elem, extents, instr.span), *extents) if type.rank else (literal(0, type.elem),)

    def op_copy(self, instr: Instr) -> None:
        (source,), result = instr.operands, instr.result
        self.values[result] = self.copied(self.values[source], result.type, instr.span) if result.type.rank else self.values[source]

    def op_free(self, instr: Instr) -> None:
        self.put(f"call void @tlc.free(ptr %ctx, ptr {self.values[instr.operands[0]][0]})")

    def op_stop_grad(self, instr: Instr) -> None:
        self.values[instr.result] = self.values[instr.operands[0]]

    def op_reshape(self, instr: Instr) -> None:
        source, result = instr.operands[0], instr.result
        extents = tuple(self.one(v) for v in instr.operands[1:])
        if result.type.rank and source.type.rank:
            self.values[result] = (self.values[source][0], *extents)
        elif result.type.rank:
            pointer = self.buffer(result.type.elem, extents, instr.span)
            self.store(pointer, self.one(source), source.type.elem)
            self.values[result] = (pointer, *extents)
        elif source.type.rank:
            self.values[result] = (self.load(self.values[source][0], result.type.elem),)
        else:
            self.values[result] = self.values[source]

    def op_index(self, instr: Instr) -> None:
        x, *indices = instr.operands
        if not x.type.rank:
            self.values[instr.result] = self.values[x]
            return
        pointer = self.part(x, indices)
        if not instr.result.type.rank:
            self.values[instr.result] = (self.load(pointer, x.type.elem),)
        else:
            rest = self.values[x][1 + len(indices) :]
            self.values[instr.result] = self.copied((pointer, *rest), instr.result.type, instr.span)

    def op_view(self, instr: Instr) -> None:
        x, *words = instr.operands
        count = len(words) - instr.result.type.rank
        self.values[instr.result] = (self.part(x, words[:count]), *map(self.one, words[count:]))

    def op_split(self, instr: Instr) -> None:
        x, *indices = instr.operands
        whole, part = instr.results
        self.values[whole] = self.values[x]
        self.values[part] = (self.part(x, indices), *self.values[x][1 + len(indices) :])

    def op_join(self, instr: Instr) -> None:
        self.values[instr.result] = self.values[instr.operands[0]]

    def op_update(self, instr: Instr) -> None:
        x, *indices, v = instr.operands
        if not x.type.rank:
            self.values[instr.result] = self.values[v]
            return
        pointer = self.part(x, indices)
        if v.type.rank:
            self.move(pointer, self.values[v][0], self.bytes(v.type.elem, self.values[v][1:]))
        else:
            self.store(pointer, self.one(v), v.type.elem)
        self.values[instr.result] = self.values[x]

    def op_load(self, instr: Instr) -> None:
        x, place = instr.operands
        self.values[instr.result] = (self.load(self.element(x, place), x.type.elem),)

    def op_store(self, instr: Instr) -> None:
        x, place, v = instr.operands
        self.store(self.element(x, place), self.one(v), v.type.elem)
        self.values[instr.result] = self.values[x]

    def op_push(self, instr: Instr) -> None:
        v = instr.operands[0]
        words = self.slots_of(v)
        pointer = self.ins(f"call ptr @tlc.push(ptr %ctx, i64 {tape_of(instr)}, i64 {8 * len(words)})")
        full = Site("memory", "there is no memory left for the tape of a derivative", (), instr.span)
        self.require(self.ins(f"icmp ne ptr {pointer}, null"), full, ())
        for k, word in enumerate(words):
            self.put(f"store i64 {word}, ptr {self.at(pointer, 8 * k)}")

    def op_pop(self, instr: Instr) -> None:
        type = instr.result.type
        pointer = self.ins(f"call ptr @tlc.pop(ptr %ctx, i64 {tape_of(instr)}, i64 {8 * len(parts(type))})")
        self.values[instr.result] = self.from_slots(pointer, 0, type)

    def op_format(self, instr: Instr) -> None:
        template = instr.attrs["template"]
        assert isinstance(template, tuple)
        number = len(self.tables.templates)
        self.tables.templates.append(Template(template, tuple(v.type for v in instr.operands)))
        self.service("format", [str(number), *(w for v in instr.operands for w in self.slots_of(v))], instr)

    def op_print(self, instr: Instr) -> None:
        self.service("print", self.slots_of(instr.operands[0]), instr)

    def op_extern(self, instr: Instr) -> None:
        types = tuple(v.type for v in instr.operands), tuple(r.type for r in instr.results)
        number = len(self.tables.externs)
        self.tables.externs.append(Extern(str(instr.attrs["name"]), *types, instr.span))
        self.service("extern", [str(number), *(w for v in instr.operands for w in self.slots_of(v))], instr)

    def op_trap(self, instr: Instr) -> None:
        """It stands where its condition does not hold (`tensor/lower.py`)."""
        _, *values = instr.operands
        number = len(self.tables.externs)
        self.tables.externs.append(Extern("trap", tuple(v.type for v in values), (), instr.span, recipe_of(instr)))
        self.service("extern", [str(number), *(w for v in values for w in self.slots_of(v))], instr)

    def op_foreign(self, instr: Instr) -> None:
        result = instr.result.type.elem if instr.results else None
        f = Foreign(str(instr.attrs["symbol"]), tuple(v.type.elem for v in instr.operands), result)
        self.tables.foreign[f] = None
        args = ", ".join(f"{c_param(v.type.elem)} {self.one(v)}" for v in instr.operands)
        call = f"call {c_result(result)} @{f.name}({args})"
        if result is None:
            self.put(call)
        else:
            self.values[instr.result] = (self.ins(call),)

    def op_progress_begin(self, instr: Instr) -> None:
        self.service("progress_begin", [self.one(v) for v in instr.operands], instr)

    def op_progress_end(self, instr: Instr) -> None:
        self.service("progress_end", [self.one(v) for v in instr.operands], instr)

    def op_progress_due(self, instr: Instr) -> None:
        self.values[instr.result] = (self.ins("call i1 @tlc.due(ptr %ctx)"),)

    def op_progress_note(self, instr: Instr) -> None:
        self.service("progress_note", [self.one(v) for v in instr.operands], instr)

    def op_progress_tick(self, instr: Instr) -> None:
        bar, at = instr.operands
        self.require_status(self.ins(f"call i32 @tlc.tick(ptr %ctx, i64 {self.one(bar)}, i64 {self.one(at)})"))

    # ------------------------------------------------------------ services

    def service(self, name: str, args: list[str], instr: Instr) -> None:
        """Call a service; its results stand behind its arguments in the slots."""
        results = sum(len(parts(r.type)) for r in instr.results)
        self.slots = max(self.slots, len(args) + results)
        for k, a in enumerate(args):
            self.put(f"store i64 {a}, ptr {self.at('%slots', 8 * k)}")
        function = self.ins(f"load ptr, ptr {self.at('%ctx', offset('services') + 8 * SERVICES.index(name))}")
        self.require_status(self.ins(f"call i32 {function}(ptr %slots)"))
        k = len(args)
        for r in instr.results:
            self.values[r] = self.from_slots("%slots", k, r.type)
            k += len(parts(r.type))

    def slots_of(self, value: Value) -> list[str]:
        """A value as 64-bit operands."""
        if not value.type.rank:
            return [self.slot(self.one(value), value.type.elem)]
        pointer, *extents = self.values[value]
        return [self.ins(f"ptrtoint ptr {pointer} to i64"), *extents]

    def slot(self, text: str, elem: Elem) -> str:
        type = register(elem)
        if elem.is_real:
            text, type = self.ins(f"bitcast {type} {text} to i{elem.width}"), f"i{elem.width}"
        if type == "i64":
            return text
        return self.ins(f"{'sext' if elem.is_signed else 'zext'} {type} {text} to i64")

    def from_slots(self, pointer: str, first: int, type: Type) -> tuple[str, ...]:
        def word(k: int, kind: str) -> str:
            return self.ins(f"load {kind}, ptr {self.at(pointer, 8 * (first + k))}")

        if not type.rank:
            return (word(0, register(type.elem)),) if type.elem is not Elem.BOOL else (self.ins(f"trunc i8 {word(0, 'i8')} to i1"),)
        return (word(0, "ptr"), *(word(1 + k, "i64") for k in range(type.rank)))

    # ------------------------------------------------------------ memory

    def load(self, pointer: str, elem: Elem) -> str:
        text = self.ins(f"load {storage(elem)}, ptr {pointer}, align {elem.bytes}")
        return self.ins(f"trunc i8 {text} to i1") if elem is Elem.BOOL else text

    def store(self, pointer: str, text: str, elem: Elem) -> None:
        if elem is Elem.BOOL:
            text = self.ins(f"zext i1 {text} to i8")
        self.put(f"store {storage(elem)} {text}, ptr {pointer}, align {elem.bytes}")

    def part(self, x: Value, indices: list[Value]) -> str:
        """Where the part of a tensor at leading indices begins."""
        pointer, *extents = self.values[x]
        flat = "0"
        for k, extent in enumerate(extents):
            index = self.one(indices[k]) if k < len(indices) else "0"
            flat = index if flat == "0" else self.ins(f"add i64 {self.ins(f'mul i64 {flat}, {extent}')}, {index}")
        return self.ins(f"getelementptr {storage(x.type.elem)}, ptr {pointer}, i64 {flat}")

    def element(self, x: Value, place: Value) -> str:
        """Where the element at a row-major position of a tensor lies."""
        return self.ins(f"getelementptr {storage(x.type.elem)}, ptr {self.values[x][0]}, i64 {self.one(place)}")

    def buffer(self, elem: Elem, extents: tuple[str, ...], span: Span) -> str:
        """A new buffer; stops the run if there is no memory."""
        size = self.bytes(elem, extents)
        pointer = self.ins(f"call noalias ptr @tlc.alloc(ptr %ctx, i64 {size})")
        site = Site("memory", "there is no memory for a tensor of {0} bytes", (Elem.I64,), span)
        self.require(self.ins(f"icmp ne ptr {pointer}, null"), site, (size,))
        return pointer

    def bytes(self, elem: Elem, extents: tuple[str, ...]) -> str:
        """The size of a buffer, the largest number if it overflows or if an extent is not below `EXTENT`, on which passes rely."""
        size = str(elem.bytes)
        if any(e.isdigit() and int(e) >= EXTENT for e in extents):
            return str(2**63 - 1)
        for e in extents:
            if size.isdigit() and e.isdigit():
                size = str(min(int(size) * int(e), 2**63 - 1))
                continue
            pair = self.ins(f"call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 {size}, i64 {e})")
            product, over = (self.ins(f"extractvalue {{ i64, i1 }} {pair}, {k}") for k in (0, 1))
            size = self.ins(f"select i1 {over}, i64 {2**63 - 1}, i64 {product}")
        for e in extents if len(extents) > 1 else ():  # another may be 0
            if not e.isdigit():
                size = self.ins(f"select i1 {self.ins(f'icmp uge i64 {e}, {EXTENT}')}, i64 {2**63 - 1}, i64 {size}")
        return size

    def copied(self, source: tuple[str, ...], type: Type, span: Span) -> tuple[str, ...]:
        pointer = self.buffer(type.elem, source[1:], span)
        self.move(pointer, source[0], self.bytes(type.elem, source[1:]))
        return (pointer, *source[1:])

    def move(self, to: str, source: str, size: str) -> None:
        self.put(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")
