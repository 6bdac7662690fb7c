"""What the functions mean that the compiler itself knows: how they are called, and documentation as a `##` comment has it.

`tlc doc` and the page of the standard library show it; a test runs the examples, and asks that no function is missing.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass


@dataclass(frozen=True)
class Row:
    """`form` is how it is called, `doc` what it means, with examples."""

    name: str
    form: str
    doc: str


# A group is headed by `#`; a row is a form, and its documentation below, indented by two.
_TEXT = """
# reductions

sum(x, axis = k)
  The sum of all numbers of a tensor, or along an axis (or a tuple of axes); over a struct, of all its real leaves.
  >>> sum([[1, 2], [3, 4]], axis = 0)
  [4 6]

prod(x, axis = k)
  The product; of nothing, 1.
  >>> prod([2, 3, 4])
  24

max(x, axis = k)
  The greatest number; NaN wins. `max(a, b)` is element by element.
  >>> max([[1, 5], [7, 2]], axis = -1)
  [5 7]

min(x, axis = k)
  The least number; NaN wins. `min(a, b)` is element by element.
  >>> min([1, 5], [4, 2])
  [1 2]

mean(x, axis = k)
  The mean of reals.
  >>> mean([1.0, 2.0, 6.0])
  3.0

variance(x, axis = k)
  The mean squared distance from the mean (divided by `n`, not by `n - 1`).
  >>> variance([1.0, 3.0])
  1.0

std(x, axis = k)
  The root of `variance`; its derivative at 0 is 0.
  >>> std([1.0, 5.0])
  2.0

any(x, axis = k)
  Whether one is true; of nothing, false.
  >>> any([false, true])
  true

all(x, axis = k)
  Whether all are true; of nothing, true.
  >>> all([[true, false], [true, true]], axis = 1)
  [false  true]

argmax(x, axis = k)
  The place of the greatest number, the first of equals.
  >>> argmax([[1, 5, 2], [7, 7, 2]], axis = -1)
  [1 0]

argmin(x, axis = k)
  The place of the least number, the first of equals.
  >>> argmin([3, 1, 1])
  1

# tensors

zeros(n, m, ...)
  A tensor of zeros with these dimensions; its element type is what other uses ask for.
  >>> zeros(2, 3)
  [[0. 0. 0.]
   [0. 0. 0.]]

ones(n, m, ...)
  A tensor of ones.
  >>> ones(2)
  [1. 1.]

full(value, n, m, ...)
  A tensor of which every element is `value`, which may be a tensor or a struct.
  >>> full(7, 2, 2)
  [[7 7]
   [7 7]]

reshape(x, n, m, ...)
  The same elements in row-major order with other dimensions; one of them may be -1, which is found.
  >>> reshape([1, 2, 3, 4], 2, -1)
  [[1 2]
   [3 4]]

concat(a, b, ..., axis = 0)
  Tensors behind one another along an axis.
  >>> concat([1, 2], [3])
  [1 2 3]

stack(a, b, ..., axis = 0)
  Tensors of one shape side by side, along a new axis.
  >>> stack([1, 2], [3, 4], axis = 1)
  [[1 3]
   [2 4]]

pad(x, before, after, value = 0)
  A tensor with `before` and `after` elements more at the ends of every dimension; `pad(x, n)` is `pad(x, n, n)`.
  >>> pad([1, 2], 1, 2)
  [0 1 2 0 0]

len(x)
  The first dimension of a tensor, or how many items a tuple has.
  >>> len([[1, 2, 3], [4, 5, 6]])
  2

norm(x)
  The root of the sum of the squares of all numbers of a tensor, or of all real leaves of a struct; its derivative at 0 is 0.
  >>> norm([3.0, 4.0])
  5.0

# derivatives

grad(f)(x, ..., wrt = a)
  The gradient of a number by the first argument, or by parameters of `f` that `wrt` names: `wrt = a`, `wrt = (a, b)`.
  >>> grad(fn(x: f32) => x ** 3)(2.0)
  12.0

value_and_grad(f)(x, ...)
  The number and its gradient.
  >>> value_and_grad(fn(x: f32) => x ** 3)(2.0)
  (8.0, 12.0)

jvp(f)(x, dx)
  The value, and by how much it changes if `x` changes by a little `dx` (forward mode). Several arguments are tuples.
  >>> jvp(fn(x: f32) => x ** 3)(2.0, 0.5)
  (8.0, 6.0)

vjp(f)(x, dy)
  The value, and the gradient by `x` of its product with `dy` (reverse mode).
  >>> vjp(fn(x: f32) => x ** 3)(2.0, 0.5)
  (8.0, 6.0)

jacobian(f)(x)
  All derivatives of a tensor by a tensor: the dimensions of the result, then those of `x`.
  >>> jacobian(fn(x: f32[2]) => x * x)([1.0, 3.0])
  [[2. 0.]
   [0. 6.]]

hessian(f)(x)
  The second derivatives of a number.
  >>> hessian(fn(x: f32[2]) => x[0] * x[1])([1.0, 3.0])
  [[0. 1.]
   [1. 0.]]

checkpoint(f)(x, ...)
  `f(x, ...)`, of which derivatives store the arguments alone, and compute the rest again: less memory, more time.
  >>> checkpoint(fn(x: f32) => x * x)(3.0)
  9.0

stop_grad(x)
  `x`, a constant to derivatives.
  >>> grad(fn(x: f32) => x * stop_grad(x))(3.0)
  3.0

# random numbers

key(seed)
  The key of a seed: random numbers are functions of a key.
  >>> uniform(key(0), 2) == uniform(key(0), 2)
  [true true]

split(k, n)
  `n` new keys, a `key[n]`; without `n`, a pair. Uses `k` up.
  >>> len(split(key(0), 5))
  5

fold(k, data, ...)
  A new key for each data, an `i64` or a string. Does not use `k` up, if the data differ.
  >>> uniform(fold(key(0), "a"), 1) == uniform(fold(key(0), "b"), 1)
  [false]

uniform(k, n, m, ...)
  Uniform numbers from 0 to below 1.
  >>> max(uniform(key(0), 100)) < 1.0
  true

normal(k, n, m, ...)
  Standard normal numbers.
  >>> abs(mean(normal(key(0), 10000))) < 0.05
  true

randint(k, lo, hi, n, m, ...)
  Whole numbers from `lo` to `hi - 1`.
  >>> max(randint(key(0), 0, 6, 100))
  5

bernoulli(k, p, n, m, ...)
  Bools that are true with probability `p`.
  >>> all(bernoulli(key(0), 1.0, 3))
  true

# the world

print(a, b, ...)
  Writes its arguments, with blanks between, and a newline; with `end = ""`, none.
  >>> "{[1.0, 2.5]:.2f}"
  [1.00 2.50]

fail(message)
  Stops the program with a message.

clock()
  Seconds, an `f64`, of a clock that never goes back.
"""


def _groups() -> dict[str, tuple[Row, ...]]:
    groups: dict[str, list[Row]] = {}
    rows: list[Row] = []
    for line in _TEXT.strip().split("\n"):
        if line.startswith("# "):
            rows = groups.setdefault(line[2:], [])
        elif line.startswith("  "):
            last = rows.pop()
            rows.append(Row(last.name, last.form, f"{last.doc}\n{line[2:]}".lstrip("\n")))
        elif line:
            rows.append(Row(line.partition("(")[0], line, ""))
    return {name: tuple(found) for name, found in groups.items()}


GROUPS: dict[str, tuple[Row, ...]] = _groups()
ROWS: dict[str, Row] = {row.name: row for rows in GROUPS.values() for row in rows}
