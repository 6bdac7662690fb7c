"""The kernel IR: explicit loops over buffers. It is what a schedule produces and what LLVM, C and CUDA print.

A small tree of frozen nodes. Its meaning is the sequential one: every loop runs its iterations in order, whatever its
kind; a kind promises that the order does not matter (`vector`, `parallel`) or asks for a form (`unroll`), and a schedule that
promises it wrongly is caught by comparing a backend with the interpreter.

Buffers. `global` ones are parameters, row-major and contiguous; `local` ones are declared in the body, have
constant shapes and are meant for registers: where all their indices become constants once `unroll` loops are unrolled and
`vector` loops are vectors, a backend keeps them in (vector) registers, else on the stack.

A kernel for a GPU is one or more grids (`tensor/kernel/grid.py`): block loops, and in them one thread loop, whose body is the program of a
thread. There iterations are not sequential: the threads of a block run together, and meet at barriers. `shared` buffers belong to a block.

Every index expression is `i64`. Reals never contract or reassociate: a fused multiply-add is the op `fma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from enum import Enum
from functools import cached_property

from tlc.frontend.ops import SCALAR_OPS
from tlc.frontend.records import dataclass
from tlc.frontend.source import NOWHERE, Span
from tlc.frontend.types import Elem


class Kind(Enum):
    """What a loop promises or asks for."""

    SERIAL = "serial"
    UNROLL = "unroll"  # constant extent
    VECTOR = "vector"  # constant `width`; the extent may be smaller at run time (a masked tail): stop <= start + width
    PARALLEL = "parallel"  # around all other loops; its iterations may run at once, on several threads
    BLOCK = "block"  # of a grid: an iteration is a block of threads; blocks run in any order
    THREAD = "thread"  # directly in the block loops; constant extent, a multiple of `WARP`


GRAIN = 1 << 18  # what threads claim at once costs at least this much, in fused multiply-adds: a few microseconds


WARP = 32  # threads that run in step
THREADS = 1024  # in a block, at most
GROUPS = 7  # of a thread's copies that may be on their way when it has waited, at most
SHARED = 99 << 10  # bytes of the shared memory of a block, at most: what every GPU since sm_80 can give one


class Space(Enum):
    GLOBAL = "global"
    LOCAL = "local"
    SHARED = "shared"  # by the threads of a block, its contents undefined at first


class How(Enum):
    """Whose value a thread gets in an exchange."""

    XOR = "xor"  # of the lane whose number differs in the bits of `lane`
    DOWN = "down"  # of the lane that is `lane` further; its own, where there is none
    INDEX = "index"  # of the lane with that number


# ---------------------------------------------------------------- expressions


@dataclass(frozen=True, eq=False)
class Const:
    """Equal when the bits are: 0.0 and -0.0 differ, nan equals itself."""

    value: bool | int | float
    elem: Elem

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.elem is other.elem and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.elem))


@dataclass(frozen=True)
class Var:
    """A loop index, a `Let` or a scalar parameter; names are unique in a kernel."""

    name: str
    elem: Elem = Elem.I64


@dataclass(frozen=True)
class Op:
    """A scalar op of `frontend/ops.py`; `elem` is the type of the result. Elementary functions are expanded before a backend prints."""

    op: str
    elem: Elem
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Load:
    """An element of a buffer. With a guard (a bool, for global buffers only), what lies there where it holds; where not, nothing is read
    and the value is 0, and the indices may be out of range.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    guard: Expr | None = None

    @property
    def elem(self) -> Elem:
        return self.buffer.elem


@dataclass(frozen=True)
class Apply:
    """A call of an outlined scalar function of the host module; a buffer among the arguments passes its pointer and extents."""

    function: str
    elem: Elem
    args: tuple[Expr | Buffer, ...]


Expr = Const | Var | Op | Load | Apply


@dataclass(frozen=True)
class Buffer:
    """`shape` are expressions over scalar parameters (constants for local buffers); rank 0 is one cell."""

    name: str
    elem: Elem
    shape: tuple[Expr, ...]
    space: Space = Space.GLOBAL


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class For:
    """`for var in start..stop by step`; `width` is the number of lanes of a vector loop (step 1, start..start + width at most); `work` is
    what an iteration of a parallel loop costs, in fused multiply-adds of a core at full speed: what costs little stays on one thread.
    """

    var: Var
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    kind: Kind = Kind.SERIAL
    step: int = 1
    width: int = 0
    work: Expr | None = None


@dataclass(frozen=True)
class Let:
    var: Var
    value: Expr


@dataclass(frozen=True)
class Store:
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    other: tuple[Stmt, ...] = ()


@dataclass(frozen=True)
class Declare:
    """A local or shared buffer comes into being, its contents undefined."""

    buffer: Buffer


@dataclass(frozen=True)
class Barrier:
    """All threads of a block come here before one goes on; each then sees what any stored to shared and global memory before."""


@dataclass(frozen=True)
class Exchange:
    """`var` becomes the `value` of another thread of the same warp. All of its threads take part; lanes are numbered from 0 in a warp."""

    var: Var
    value: Expr
    how: How
    lane: Expr


@dataclass(frozen=True)
class LoadMatrices:
    """Four matrices of eight rows of 16 bytes each, in shared memory, become those that the threads of a warp hold. `row` is the first
    element of one of the rows: lane `l` names row `l % 8` of matrix `l // 8`. `into` is the first of a thread's elements in a local buffer,
    which lie one behind the other: of each matrix those of one register (`tensor/kernel/matrices.py`).
    """

    into: Load
    row: Load
    transposed: bool = False  # threads get the elements of a column where they would get those of a row


@dataclass(frozen=True)
class Mma:
    """`acc += a @ b`, of matrices that the threads of a warp hold together: each is given by the first of a thread's elements in a local
    buffer. The forms, and which thread holds which element, are those of `tensor/kernel/matrices.py`.
    """

    acc: Load
    a: Load
    b: Load


@dataclass(frozen=True)
class CopyAsync:
    """16 bytes of an input are on their way to shared memory: those from the two elements named on, along the last axes, whose positions
    are multiples of 16 bytes; zeros, where the guard of `source` does not hold. They are there, for the thread, when it has waited.
    """

    into: Load
    source: Load


@dataclass(frozen=True)
class CommitCopies:
    """The copies that the thread has begun since the last time are a group."""


@dataclass(frozen=True)
class WaitCopies:
    """The thread waits until of its groups of copies only the last ones, so many, may be on their way."""

    pending: int


Meeting = Exchange | LoadMatrices | Mma  # of the threads of a warp
Copying = CopyAsync | CommitCopies | WaitCopies
Stmt = For | Let | Store | If | Declare | Barrier | Meeting | Copying


@dataclass(frozen=True)
class Kernel:
    """Parameters in order of the call: outputs, then inputs (buffers and scalars as the launch passes them).

    A buffer that is an output may be read after it was written. An output may share memory with the input buffer
    of the same position in `may_alias` (output position, input position): each element is read before it is written.
    `can_fail`: an applied function may record an error, so the host looks after the launch.
    The last `work` outputs are buffers that the kernel only works in: what it leaves there means nothing, and some of it may be as it was.
    """

    name: str
    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer | Var, ...]
    body: tuple[Stmt, ...]
    may_alias: tuple[tuple[int, int], ...] = ()
    can_fail: bool = False
    work: int = 0
    span: Span = field(default=NOWHERE, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)  # source lines and decisions, for people

    @property
    def results(self) -> tuple[Buffer, ...]:
        """The outputs that mean something after the launch."""
        return self.outputs[: len(self.outputs) - self.work]

    @property
    def parameters(self) -> tuple[Buffer | Var, ...]:
        return (*self.outputs, *self.inputs)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are buffers."""
        return (*self.outputs, *(p for p in self.inputs if isinstance(p, Buffer)))

    @cached_property
    def applied(self) -> tuple[str, ...]:
        """Names of the functions of the host module that the kernel applies, in order of appearance. Most stages ask."""
        calls = (e for s in statements(self.body) for root in expressions(s) for e in subexpressions(root))
        return tuple(dict.fromkeys(e.function for e in calls if isinstance(e, Apply)))


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    left = [*reversed(body)]  # the next one last
    while left:
        s = left.pop()
        yield s
        match s:
            case For():
                left += reversed(s.body)
            case If():
                left += reversed(s.other)
                left += reversed(s.then)
            case _:
                pass


def expressions(s: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, those of statements in it not included."""
    match s:
        case For():
            yield from (s.start, s.stop, *([] if s.work is None else [s.work]))
        case Let():
            yield s.value
        case Store():
            yield from (*s.indices, s.value)
        case If():
            yield s.cond
        case Exchange():
            yield from (s.value, s.lane)
        case LoadMatrices():
            yield from (s.into, s.row)
        case Mma():
            yield from (s.acc, s.a, s.b)
        case CopyAsync():
            yield from (s.into, s.source)
        case _:
            pass


def conjuncts(cond: Expr) -> Iterator[Expr]:
    """What a condition is the conjunction of."""
    match cond:
        case Op("and", Elem.BOOL, (a, b)):
            yield from conjuncts(a)
            yield from conjuncts(b)
        case _:
            yield cond


def subexpressions(e: Expr) -> Iterator[Expr]:
    """An expression and all in it."""
    left = [e]  # the next one last
    while left:
        e = left.pop()
        yield e
        match e:
            case Op():
                left += reversed(e.args)
            case Load():
                if e.guard is not None:
                    left.append(e.guard)
                left += reversed(e.indices)
            case Apply():
                left += [x for x in reversed(e.args) if not isinstance(x, Buffer)]
            case _:
                pass


def const(value: int) -> Const:
    return Const(value, Elem.I64)


def op(name: str, *args: Expr, elem: Elem | None = None) -> Op:
    """An op whose result type follows from its row and operands; `elem` is needed where the row says `type`."""
    gives = SCALAR_OPS[name].gives
    if gives == "bool":
        elem = Elem.BOOL
    elif gives == "same":
        elem = args[-1].elem
    assert elem is not None, name
    return Op(name, elem, args)
