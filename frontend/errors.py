"""The catalogue of diagnostics: one row a code, with a bad program and how to mend it. `tlc explain E0103` prints a row.

    E01xx  lexing and parsing             E06xx  derivatives
    E02xx  names and modules              E07xx  keys and random numbers
    E03xx  types, shapes, dimensions      E08xx  main and its flags
    E04xx  calls, lifting, generics       E09xx  not supported yet
    E05xx  statements and mutation        E10xx  texts of intermediate forms
    R0xxx  stops at run time              W0xxx  warnings

A code, once released, keeps its meaning; a row is added at the end of its section. tests/unit/test_errors.py gives every
`bad` program of the parser's and the checker's sections to that stage and looks for the code, so these rows cannot lie.
"""

from __future__ import annotations

from tlc.frontend.records import dataclass


@dataclass(frozen=True)
class ErrorRow:
    """`title` names the mistake in a few words, `cause` explains it, `bad` is a whole program that shows it, `mend` repairs it."""

    code: str
    title: str
    cause: str
    bad: str
    mend: str


_ROWS = [
    # ---------------------------------------------------------------- E01xx: lexing and parsing
    ErrorRow(
        "E0101",
        "unexpected text",
        "The parser met something that cannot stand at this place. The message says what was found and what could have stood there.",
        "fn f(x: f32) -> f32 = x + * 2.0\n",
        "fn f(x: f32) -> f32 = x * 2.0\n",
    ),
    ErrorRow(
        "E0102",
        "unknown character",
        "The text has a character that no word of the language begins with.",
        "fn f(x: f32) -> f32 = x $ 2.0\n",
        "fn f(x: f32) -> f32 = x * 2.0\n",
    ),
    ErrorRow(
        "E0103",
        "unclosed bracket",
        "A bracket is opened and never closed, or closed by a bracket of another kind. The message points at the opening.",
        "fn f(x: f32) -> f32 = (x + 1.0\n",
        "fn f(x: f32) -> f32 = (x + 1.0)\n",
    ),
    ErrorRow(
        "E0104",
        "bracket without an opening",
        "A closing bracket has no opening bracket before it.",
        "fn f(x: f32) -> f32 = x + 1.0)\n",
        "fn f(x: f32) -> f32 = (x + 1.0)\n",
    ),
    ErrorRow(
        "E0105",
        "line starts with an operator",
        "A newline ends a statement unless the line ends with an operator; a line that starts with one does not continue the line above.",
        "fn f(x: f32, y: f32) -> f32 {\n  let s = x\n    + y\n  s\n}\n",
        "fn f(x: f32, y: f32) -> f32 {\n  let s = x +\n    y\n  s\n}\n",
    ),
    ErrorRow(
        "E0106",
        "unclosed string",
        "A string ends on the line where it begins. An interpolation `{...}` in it must be closed too; a brace itself is written `{{`.",
        'fn main() {\n  print("hello)\n}\n',
        'fn main() {\n  print("hello")\n}\n',
    ),
    ErrorRow(
        "E0107",
        "bad string",
        "The string has an escape that does not exist, a lone `}`, or an empty interpolation.",
        'fn main() {\n  print("50\\% }")\n}\n',
        'fn main() {\n  print("50% }}")\n}\n',
    ),
    ErrorRow(
        "E0108",
        "bad number",
        "This is not a number as the language writes it: digits stand on both sides of the point, and a suffix is an element type.",
        "fn f(x: f32) -> f32 = x * 1.\n",
        "fn f(x: f32) -> f32 = x * 1.0\n",
    ),
    ErrorRow(
        "E0109",
        "comparisons do not chain",
        "`a < b < c` would compare a truth value with a number.",
        "fn f(x: f32) -> bool = 0.0 < x < 1.0\n",
        "fn f(x: f32) -> bool = 0.0 < x and x < 1.0\n",
    ),
    ErrorRow(
        "E0110",
        "not assignable",
        "Only a variable, a path of fields and indices from one, or a tuple of these can stand at the left of `=`.",
        "fn main() {\n  var x = 1\n  x + 1 = 2\n}\n",
        "fn main() {\n  var x = 1\n  x = 2\n}\n",
    ),
    ErrorRow(
        "E0111",
        "range out of place",
        "A range is not a value: it stands after `in`, in a subscript, or in `progress(...)` after `in`. Its ends are arithmetic.",
        "fn main() {\n  let r = len(0..10)\n}\n",
        "fn main() {\n  for i in 0..10 { print(i) }\n}\n",
    ),
    ErrorRow(
        "E0112",
        "`?` out of place",
        "`?` stands for a dimension in a type, nowhere else.",
        "fn main() {\n  let x = ? + 1\n}\n",
        "fn main() {\n  let x = 1\n}\n",
    ),
    ErrorRow(
        "E0113",
        "bad definition",
        "A definition lacks a part, has one too many, or stands where no definition can stand.",
        "fn f(x) -> f32 = x\n",
        "fn f(x: f32) -> f32 = x\n",
    ),
    ErrorRow(
        "E0114",
        "nested too deeply",
        "The expression is nested deeper than the compiler follows.",
        "const X = " + "-" * 400 + "1\n",
        "const X = 1\n",
    ),
    ErrorRow(
        "E0115",
        "arguments in disorder",
        "An argument by position stands after one by name, or a name is given twice, or a type's arguments have names.",
        "fn f(x: f32, y: f32) -> f32 = x\nfn g() -> f32 = f(x = 1.0, 2.0)\n",
        "fn f(x: f32, y: f32) -> f32 = x\nfn g() -> f32 = f(1.0, y = 2.0)\n",
    ),
    # ---------------------------------------------------------------- E02xx: names and modules
    ErrorRow(
        "E0201",
        "unknown name",
        "Nothing of this name is in scope: no variable, function or constant of this file, none of the prelude.",
        "fn area(width: f32, height: f32) -> f32 = widht * height\n",
        "fn area(width: f32, height: f32) -> f32 = width * height\n",
    ),
    ErrorRow(
        "E0202",
        "defined twice",
        "Two definitions of a file, two parameters of a function or two members of a struct share a name.",
        "fn f(x: f32) -> f32 = x\nfn f(x: i64) -> i64 = x\n",
        "fn f(x: f32) -> f32 = x\nfn g(x: i64) -> i64 = x\n",
    ),
    ErrorRow(
        "E0203",
        "unknown module",
        "`use name` finds a module of the standard library, `use ./name` the file `name.tl` beside this one.",
        "use optimizers\n",
        "use optim\n",
    ),
    ErrorRow(
        "E0204",
        "unknown member of a module",
        "The module has no definition of this name.",
        "use nn\n\nfn f(x: f32[n]) -> f32 = nn.rms(x, x)\n",
        "use nn\n\nfn f(x: f32[n]) -> f32 = nn.mse(x, x)\n",
    ),
    ErrorRow(
        "E0205",
        "wrong type",
        "The text where a type should be names none, or gives a struct the wrong arguments.",
        "fn f(x: float) -> float = x\n",
        "fn f(x: f32) -> f32 = x\n",
    ),
    ErrorRow(
        "E0206",
        "defined by itself",
        "A constant's value needs the constant itself, or a struct holds itself.",
        "const A = B + 1\nconst B = A - 1\n",
        "const A = 1\nconst B = A - 1\n",
    ),
    ErrorRow(
        "E0207",
        "not a value",
        "A type, struct or module stands where a value should be.",
        "use nn\n\nfn main() {\n  print(nn)\n}\n",
        "use nn\n\nfn main() {\n  print(nn.mse([1.0], [2.0]))\n}\n",
    ),
    ErrorRow(
        "E0208",
        "statements in a used file",
        "A file that another one uses holds definitions only: its statements would have no time to run. The program here uses such a file.",
        "use ./settings\n",
        "const RATE = 0.1\n",
    ),
    # ---------------------------------------------------------------- E03xx: types, shapes, dimensions
    ErrorRow(
        "E0301",
        "types differ",
        "Two types that must be equal are not: a value and its declaration, the sides of an `if`, the elements of a "
        "tensor literal, a variable and what is assigned. Numbers never convert by themselves.",
        "fn main() {\n  let x: f32[3] = [1.0, 2.0]\n  print(x)\n}\n",
        "fn main() {\n  let x: f32[2] = [1.0, 2.0]\n  print(x)\n}\n",
    ),
    ErrorRow(
        "E0302",
        "dimensions disagree",
        "Operands are aligned at their last dimensions, which must be provably equal. A missing dimension stretches; "
        "one of size 1 does not.",
        "fn f(a: f32[n], b: f32[m]) -> f32[n] = a + b\n",
        "fn f(a: f32[n], b: f32[n]) -> f32[n] = a + b\n",
    ),
    ErrorRow(
        "E0303",
        "mixed element types",
        "The operands have different element types. Nothing converts by itself, open literals aside: say which type is meant.",
        "fn half(x: f32, n: i64) -> f32 = x * n\n",
        "fn half(x: f32, n: i64) -> f32 = x * f32(n)\n",
    ),
    ErrorRow(
        "E0304",
        "operand not taken",
        "The operator or reduction does not take values of this type: `/` is for reals, `//` divides integers, a `mean` "
        "of integers is not defined.",
        "fn half(n: i64) -> i64 = n / 2\n",
        "fn half(n: i64) -> i64 = n // 2\n",
    ),
    ErrorRow(
        "E0305",
        "number out of range",
        "A literal does not fit into its element type, or an operation of constants has no value.",
        "fn f() -> u8 = 300\n",
        "fn f() -> u32 = 300\n",
    ),
    ErrorRow(
        "E0306",
        "wrong dimension",
        "A dimension is made of integers and immutable `i64` names with `+ - * //`. In a struct every name must be a "
        "constant or a parameter; in a result every name must come from a parameter.",
        "fn first(x: f32[n], k: i64) -> f32[m] = x[0..k]\n",
        "fn first(x: f32[n], k: i64) -> f32[k] = x[0..k]\n",
    ),
    ErrorRow(
        "E0307",
        "wrong subscript",
        "The subscript has too many indices, an index that is no integer, or one that is certainly out of range. Only a "
        "literal `-k` counts from the end.",
        "fn f(x: f32[3]) -> f32 = x[3]\n",
        "fn f(x: f32[3]) -> f32 = x[2]\n",
    ),
    ErrorRow(
        "E0308",
        "index with two ranges",
        "An index without a range takes it from the dimensions that it indexes alone, and these differ.",
        "fn f(a: f32[n], b: f32[m]) -> f32 = sum[i] a[i] * b[i]\n",
        "fn f(a: f32[n], b: f32[n]) -> f32 = sum[i] a[i] * b[i]\n",
    ),
    ErrorRow(
        "E0309",
        "index without a range",
        "The index stands alone in no subscript of a value that is known outside of the comprehension, so nothing gives it a range.",
        "fn squares(n: i64) -> i64[n] = for[i] i * i\n",
        "fn squares(n: i64) -> i64[n] = for[i < n] i * i\n",
    ),
    ErrorRow(
        "E0310",
        "unknown field",
        "The struct has no field or parameter of this name, or the value has no fields.",
        "struct Point {\n  x: f32,\n  y: f32,\n}\n\nfn f(p: Point) -> f32 = p.z\n",
        "struct Point {\n  x: f32,\n  y: f32,\n}\n\nfn f(p: Point) -> f32 = p.y\n",
    ),
    ErrorRow(
        "E0311",
        "cannot be destructured",
        "The number of names and of values differ, or the value is neither a tuple nor a tensor whose first dimension is a constant.",
        "fn main() {\n  let (a, b) = (1, 2, 3)\n  print(a, b)\n}\n",
        "fn main() {\n  let (a, b, c) = (1, 2, 3)\n  print(a, b, c)\n}\n",
    ),
    ErrorRow(
        "E0312",
        "condition is no bool",
        "A condition is one `bool`. Compare numbers; reduce tensors with `any` or `all`.",
        "fn f(n: i64) -> i64 = if n { 1 } else { 0 }\n",
        "fn f(n: i64) -> i64 = if n != 0 { 1 } else { 0 }\n",
    ),
    ErrorRow(
        "E0313",
        "format does not suit",
        "The format specification of an interpolation does not suit the type of its value. Specifications are Python's.",
        "fn main() {\n  print(\"{1:q}\")\n}\n",
        "fn main() {\n  print(\"{1:d}\")\n}\n",
    ),
    ErrorRow(
        "E0314",
        "ragged comprehension",
        "Every element of a comprehension has the same shape, so the dimensions of its body may not depend on its indices.",
        "fn f(n: i64) -> i64 = sum(for[i < n] for[j < i] j)\n",
        "fn f(n: i64) -> i64 = sum(for[i < n] for[j < n] if j < i { j } else { 0 })\n",
    ),
    # ---------------------------------------------------------------- E04xx: calls, lifting, generics
    ErrorRow(
        "E0401",
        "wrong arguments",
        "The call has an argument too many, lacks one, gives one twice, or names one that is no parameter.",
        "fn f(x: f32) -> f32 = x\nfn g() -> f32 = f(1.0, 2.0)\n",
        "fn f(x: f32) -> f32 = x\nfn g() -> f32 = f(1.0)\n",
    ),
    ErrorRow(
        "E0402",
        "argument does not fit",
        "The argument has another type than the parameter, and no lifting makes it fit: lifting adds leading "
        "dimensions, it changes neither element types nor the dimensions that the parameter names.",
        "fn f(x: f32[784]) -> f32 = sum(x)\nfn g(x: f32[64, 783]) -> f32[64] = f(x)\n",
        "fn f(x: f32[784]) -> f32 = sum(x)\nfn g(x: f32[64, 784]) -> f32[64] = f(x)\n",
    ),
    ErrorRow(
        "E0403",
        "not a function",
        "What is called is a value, or a method of one: values have no methods, functions stand before their arguments.",
        "fn main() {\n  let x = 1\n  print(x(2))\n}\n",
        "fn main() {\n  let x = fn(k) => k + 1\n  print(x(2))\n}\n",
    ),
    ErrorRow(
        "E0404",
        "cannot be lifted",
        "A parameter that occurs in a dimension does not lift, nor does a function whose result has `?`. Applied to "
        "structs, the other arguments must fit exactly and each leaf must keep its type.",
        "fn f(n: i64) -> f32[n] = zeros(n)\nfn g(n: i64[k]) -> f32 = sum(f(n))\n",
        "fn f(n: i64) -> f32[n] = zeros(n)\nfn g(n: i64[k]) -> f32 = sum[i] sum(f(n[i]))\n",
    ),
    ErrorRow(
        "E0405",
        "type parameter not fixed",
        "Nothing in the call says what a type parameter stands for.",
        "fn f[P: tree](n: i64) -> i64 = n\nfn g() -> i64 = f(1)\n",
        "fn f(n: i64) -> i64 = n\nfn g() -> i64 = f(1)\n",
    ),
    ErrorRow(
        "E0406",
        "wrong result",
        "The value of the body or of a `return` is not of the declared type.",
        "fn f(n: i64) -> f32 = n\n",
        "fn f(n: i64) -> f32 = f32(n)\n",
    ),
    ErrorRow(
        "E0407",
        "function as a value",
        "Functions are called, passed to parameters of function type, or named by `let`; they are never stored.",
        "fn f(x: f32) -> f32 = x\nfn main() {\n  let t = (f, 1)\n}\n",
        "fn f(x: f32) -> f32 = x\nfn main() {\n  let t = (f(2.0), 1)\n}\n",
    ),
    ErrorRow(
        "E0408",
        "endless instances",
        "An instance of a generic function asks for another one, and so on without an end.",
        "fn f[P: tree](x: P, n: i64) -> i64 = if n == 0 { 0 } else { f((x, x), n - 1) }\nfn g() -> i64 = f((1.0, 2.0), 3)\n",
        "fn f[P: tree](x: P, n: i64) -> i64 = if n == 0 { 0 } else { f(x, n - 1) }\nfn g() -> i64 = f((1.0, 2.0), 3)\n",
    ),
    ErrorRow(
        "E0409",
        "unknown foreign function",
        "`extern fn` declares a function of the C library (its mathematical part included), and there is none of this name.",
        "extern fn cubic_root(x: f64) -> f64\n",
        "extern fn cbrt(x: f64) -> f64\n",
    ),
    ErrorRow(
        "E0410",
        "cannot pass to C",
        "A function of C takes and gives scalars: bools, integers, `f32` and `f64`.",
        "extern fn cbrt(x: f64[n]) -> f64\n",
        "extern fn cbrt(x: f64) -> f64\n",
    ),
    ErrorRow(
        "E0411",
        "cannot go into a checkpoint",
        "A checkpoint holds tensors: numbers, bools and keys, alone or in structs and tuples. Text is none.",
        'use io\nfn main() {\n  io.save(("run 3", ones(4)), "m.safetensors")\n}\n',
        'use io\nfn main() {\n  io.save((3, ones(4)), "m.safetensors")\n}\n',
    ),
    # ---------------------------------------------------------------- E05xx: statements and mutation
    ErrorRow(
        "E0501",
        "not a variable",
        "`let`, parameters and loop variables are bound once; what changes is a `var`.",
        "fn main() {\n  let x = 1\n  x = 2\n}\n",
        "fn main() {\n  var x = 1\n  x = 2\n}\n",
    ),
    ErrorRow(
        "E0502",
        "value not used",
        "A statement computes a value that nobody takes: a forgotten `return`, `let` or assignment.",
        "fn f(x: f32) -> f32 {\n  x * 2.0\n  x\n}\n",
        "fn f(x: f32) -> f32 {\n  let y = x * 2.0\n  y\n}\n",
    ),
    ErrorRow(
        "E0503",
        "value missing",
        "A value is wanted, and the expression or block has none: a loop, an assignment, an `if` without `else`, a "
        "function without a result.",
        "fn f(x: f32) -> f32 {\n  if x > 0.0 { return 1.0 }\n}\n",
        "fn f(x: f32) -> f32 {\n  if x > 0.0 { return 1.0 }\n  0.0\n}\n",
    ),
    ErrorRow(
        "E0504",
        "jump without a loop",
        "`break` and `continue` stand inside a loop of the same function or comprehension.",
        "fn main() {\n  break\n}\n",
        "fn main() {\n  while true { break }\n}\n",
    ),
    ErrorRow(
        "E0505",
        "return out of place",
        "A comprehension, an anonymous function or the top level of a script has nothing to return from.",
        "fn f(x: f32[n]) -> f32[n] = for[i] { return x[i] }\n",
        "fn f(x: f32[n]) -> f32[n] = for[i] { x[i] }\n",
    ),
    ErrorRow(
        "E0506",
        "assignment to an outer variable",
        "The elements of a comprehension have no order, and an anonymous function captures values, so neither assigns a "
        "variable of its surroundings.",
        "fn f(x: f32[n]) -> f32 {\n  var s = 0.0\n  let y = for[i] { s += x[i]; s }\n  sum(y)\n}\n",
        "fn f(x: f32[n]) -> f32 {\n  var s = 0.0\n  for i in 0..n { s += x[i] }\n  s\n}\n",
    ),
    ErrorRow(
        "E0507",
        "input or output in a comprehension",
        "The elements of a comprehension have no order, and a constant is the same in every run: so they cannot print or read.",
        "fn f(x: f32[n]) -> f32[n] = for[i] { print(x[i]); x[i] }\n",
        "fn f(x: f32[n]) -> f32[n] {\n  for v in x { print(v) }\n  x\n}\n",
    ),
    # ---------------------------------------------------------------- E06xx: derivatives
    ErrorRow(
        "E0601",
        "no derivative by this",
        "A derivative is by real numbers: a scalar, a tensor, or a struct or tuple with real leaves. `wrt` names parameters.",
        "fn f(n: i64) -> f32 = f32(n)\nfn g() -> i64 = grad(f)(1)\n",
        "fn f(x: f32) -> f32 = x * x\nfn g() -> f32 = grad(f)(1.0)\n",
    ),
    ErrorRow(
        "E0602",
        "gradient of what is no scalar",
        "`grad` differentiates one real number. Reduce a tensor first.",
        "fn f(x: f32[n]) -> f32[n] = x * x\nfn g(x: f32[n]) -> f32[n] = grad(f)(x)\n",
        "fn f(x: f32[n]) -> f32 = sum(x * x)\nfn g(x: f32[n]) -> f32[n] = grad(f)(x)\n",
    ),
    ErrorRow(
        "E0603",
        "grad without a function",
        "`grad(f)` takes a function and is one; the arguments follow in a second call.",
        "fn f(x: f32) -> f32 = x * x\nfn g() -> f32 = grad(f(1.0))\n",
        "fn f(x: f32) -> f32 = x * x\nfn g() -> f32 = grad(f)(1.0)\n",
    ),
    ErrorRow(
        "E0604",
        "rule that does not fit its function",
        "`@vjp(g)` above a function: `g` takes the parameters of the function, its result `y` and the gradient `dy` by that, and gives "
        "the gradients of the real parameters, in their types: one alone, several as a tuple.",
        "fn rule(x: f32, dy: f32) -> f32 = dy\n\n@vjp(rule)\nfn f(x: f32) -> f32 = x\n",
        "fn rule(x: f32, y: f32, dy: f32) -> f32 = dy\n\n@vjp(rule)\nfn f(x: f32) -> f32 = x\n",
    ),
    # ---------------------------------------------------------------- E07xx: keys and random numbers
    ErrorRow(
        "E0701",
        "wrong data in fold",
        "`fold(k, data, ...)` mixes integers and literal strings into a key.",
        "fn f(k: key) -> key = fold(k, 1.5)\n",
        "fn f(k: key) -> key = fold(k, 1)\n",
    ),
    ErrorRow(
        "E0702",
        "key used twice",
        "Two calls that are given the same key draw the same numbers, so a call uses its key up. `split` makes several of one, "
        "`fold` derives one from data.",
        "fn f(k: key) -> f32 = normal(k) + normal(k)\n",
        "fn f(k: key) -> f32 {\n  let (a, b) = split(k)\n  normal(a) + normal(b)\n}\n",
    ),
    ErrorRow(
        "E0703",
        "key used in every round",
        "Inside a loop or comprehension a key from outside would be used again each time, with the same numbers. Derive one for "
        "each round, or give the variable a new key before the next round.",
        "fn f(k: key) -> f32[3] = for[i < 3] normal(k)\n",
        "fn f(k: key) -> f32[3] = for[i < 3] normal(fold(k, i))\n",
    ),
    # ---------------------------------------------------------------- E08xx: main and its flags
    ErrorRow(
        "E0801",
        "wrong flag",
        "The parameters of `main` are command-line flags: numbers, `bool` and `str`, whose defaults are constants.",
        "fn main(x: f32[3]) {\n  print(x)\n}\n",
        "fn main(x: f32) {\n  print(x)\n}\n",
    ),
    ErrorRow(
        "E0802",
        "main and statements",
        "A file has a `main` or top-level statements, not both.",
        "print(1)\nfn main() {\n  print(2)\n}\n",
        "fn main() {\n  print(1)\n  print(2)\n}\n",
    ),
    ErrorRow(
        "E0803",
        "result of main",
        "`main` is called by nobody who could take a result: it prints what it has found. `fail` stops with a message.",
        "fn main() -> i64 { 3 }\n",
        "fn main() { print(3) }\n",
    ),
    # ---------------------------------------------------------------- E09xx: not supported yet
    ErrorRow(
        "E0901",
        "not supported yet",
        "The language has this, and the compiler does not have it yet.",
        'fn main() {\n  print(for[i < 3] "{i}")\n}\n',
        'fn main() {\n  for i in 0..3 { print("{i}") }\n}\n',
    ),
    ErrorRow(
        "E0940",
        "dimension without a value",
        "A dimension variable gets its value from the arguments. One that stands only in the type of a function parameter has none at run "
        "time; what reads it has to take it as a parameter.",
        "fn total(x: f32[m]) -> f32 = sum(x)\n\nfn f(g: fn(f32[n]) -> f32) -> i64 = n\n\nfn main() {\n  print(f(total))\n}\n",
        "fn total(x: f32[m]) -> f32 = sum(x)\n\nfn f(g: fn(f32[n]) -> f32, n: i64) -> i64 = n\n\nfn main() {\n  print(f(total, 3))\n}\n",
    ),
    ErrorRow(
        "E0960",
        "derivative that is not known",
        "What a function of the C library computes cannot be looked into, so it has a derivative only by a "
        "rule: `@vjp(rule)` above a function that calls it. "
        "(Derivatives of derivatives of loops and recursive functions are known to the eighth.)",
        "extern fn cbrt(x: f64) -> f64\n\nfn main() {\n  print(grad(fn(x) => cbrt(x) * x)(8.0))\n}\n",
        "extern fn cbrt(x: f64) -> f64\n\nfn rule(x: f64, y: f64, dy: f64) -> f64 = dy / (3.0 * y * y)\n\n"
        "@vjp(rule)\nfn root(x: f64) -> f64 = cbrt(x)\n\nfn main() {\n  print(grad(fn(x) => root(x) * x)(8.0))\n}\n",
    ),
    ErrorRow(
        "E0961",
        "function that differentiates itself",
        "A function calls `grad` of itself, perhaps through others, so its derivative would need all higher derivatives: "
        "not supported yet.",
        "fn f(x: f32) -> f32 = if x < 1.0 { x } else { grad(f)(x / 2.0) }\n\nfn main() {\n  print(f(3.0))\n}\n",
        "fn g(x: f32) -> f32 = x * x\n\nfn f(x: f32) -> f32 = if x < 1.0 { x } else { grad(g)(x) }\n\nfn main() {\n  print(f(3.0))\n}\n",
    ),
    # ---------------------------------------------------------------- E10xx: texts of intermediate forms
    ErrorRow(
        "E1001",
        "text of an intermediate form that does not hold",
        "A file of SSA (`.ssa`), of kernels (`.tk`) or of machine IR (`.mir`) can be read, but breaks a rule of that form: a value is "
        "used before it is defined, types do not fit, a block has no end. The message is the verifier's.",
        "func @main() {\nentry:\n  %a = const {value = 1} : i64\n  %b = add %a, %c : i64\n  %c = const {value = 2} : i64\n  return\n}\n",
        "func @main() {\nentry:\n  %a = const {value = 1} : i64\n  %c = const {value = 2} : i64\n  %b = add %a, %c : i64\n  return\n}\n",
    ),
    ErrorRow(
        "E1011",
        "unexpected text in a graph",
        "A line of a graph (`.uir`) defines one value: `%name = op arguments : attributes`, or it names results: `output %a, "
        "%b`. Something else stands there.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = neg %0 %0\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = neg %0\n",
    ),
    ErrorRow(
        "E1012",
        "unknown op of a graph",
        "A graph is made of buffers and constants, of ops that move (`reshape permute expand pad shrink slice flip`), of the "
        "scalar ops, and of `reduce` with one of its reducers.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = rehsape %0, (2, 3)\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 3)\n",
    ),
    ErrorRow(
        "E1013",
        "value of a graph undefined or twice defined",
        "A line reads values of lines above it, and each name is defined once.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = neg %2\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = neg %0\n",
    ),
    ErrorRow(
        "E1014",
        "argument of an op that does not fit",
        "An op takes so many values, numbers and tuples, each in its place: `pad` a pair for each axis, `permute` the axes in "
        "their new order.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = pad %0, (1, 2)\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = pad %0, ((1, 2),)\n",
    ),
    ErrorRow(
        "E1015",
        "shapes of a graph that do not agree",
        "The operands of an op are aligned at the right; two extents agree if they are equal or one of them is 1. `expand` "
        "stretches extents of 1 only.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 3)\n%2 = reshape %0, (3, 2)\n%3 = add %1, %2\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 3)\n%2 = reshape %0, (3, 2)\n%3 = permute %2, (1, 0)\n%4 = add %1, %3\n",
    ),
    ErrorRow(
        "E1016",
        "element type that an op does not take",
        "The operands of an op have one element type, which it takes; nothing is converted unless `cast` says so.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = shl %0, 1\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = cast %0 : dtype=i32\n%2 = shl %1, 1\n",
    ),
    ErrorRow(
        "E1017",
        "reshape to another number of elements",
        "`reshape` gives the same elements another shape, so both shapes have as many.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 4)\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reshape %0, (2, 3)\n",
    ),
    ErrorRow(
        "E1018",
        "axis that is not there",
        "Axes are numbered from 0. `permute` names each once, `flip` some of them, and `reduce` takes the last `pop` axes, at "
        "least one and at most all.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reduce %0 : op=add pop=2\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = reduce %0 : op=add pop=1\n",
    ),
    ErrorRow(
        "E1019",
        "bounds outside of a tensor",
        "`shrink` and `slice` stay within the tensor, paddings and extents are not negative, steps are at least 1, and only "
        "sums, products, `any` and `all` reduce an empty axis.",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = shrink %0, ((2, 8),)\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = shrink %0, ((2, 6),)\n",
    ),
    ErrorRow(
        "E1020",
        "attribute of an op that does not fit",
        "Attributes stand behind a colon as `name=value`. A `buffer` has `dtype` and a `slot` of its own, `const` and `cast` "
        "have `dtype`, `reduce` has `op` and `pop`, `pad` may have `value`.",
        "%0 = buffer 6 : dtype=float slot=0\n%1 = neg %0\n",
        "%0 = buffer 6 : dtype=f32 slot=0\n%1 = neg %0\n",
    ),
    # ---------------------------------------------------------------- R0xxx: stops at run time
    ErrorRow(
        "R0001",
        "index out of range",
        "An index is below 0 or not below the extent of its dimension. Only a literal `-k` counts from the end.",
        "fn main(i: i64 = 3) {\n  let x = [1.0, 2.0, 3.0]\n  print(x[i])\n}\n",
        "fn main(i: i64 = 2) {\n  let x = [1.0, 2.0, 3.0]\n  print(x[i])\n}\n",
    ),
    ErrorRow(
        "R0002",
        "slice out of range",
        "The ends of a slice are not in order, or outside of the dimension: a slice never clamps, so `0 <= a <= b <= n`.",
        "fn main(n: i64 = 5) {\n  let x = [1.0, 2.0, 3.0]\n  print(x[0 .. n])\n}\n",
        "fn main(n: i64 = 3) {\n  let x = [1.0, 2.0, 3.0]\n  print(x[0 .. n])\n}\n",
    ),
    ErrorRow(
        "R0003",
        "division by zero",
        "`//` or `%` divides an integer by zero. (Reals give inf or NaN.)",
        "fn main(n: i64 = 0) {\n  print(10 // n)\n}\n",
        "fn main(n: i64 = 5) {\n  print(10 // n)\n}\n",
    ),
    ErrorRow(
        "R0004",
        "shapes do not agree",
        "`x as T` promised a shape that the tensor does not have.",
        "fn main(n: i64 = 3) {\n  let x = for[i < n] 1.0\n  print(x as f32[4])\n}\n",
        "fn main(n: i64 = 4) {\n  let x = for[i < n] 1.0\n  print(x as f32[4])\n}\n",
    ),
    ErrorRow(
        "R0005",
        "wrong number of elements",
        "`reshape` asks for more or fewer elements than there are.",
        "fn main(n: i64 = 4) {\n  let x = for[i < n] 1.0\n  print(reshape(x, 2, 3))\n}\n",
        "fn main(n: i64 = 6) {\n  let x = for[i < n] 1.0\n  print(reshape(x, 2, 3))\n}\n",
    ),
    ErrorRow(
        "R0006",
        "range with step 0",
        "`a..b by 0` would never end.",
        "fn main(s: i64 = 0) {\n  for i in 0..10 by s { print(i) }\n}\n",
        "fn main(s: i64 = 2) {\n  for i in 0..10 by s { print(i) }\n}\n",
    ),
    ErrorRow(
        "R0007",
        "nothing to reduce",
        "`max min mean argmax argmin` of no elements have no value. (`sum` is 0, `prod` 1, `any` false, `all` true.)",
        "fn main(n: i64 = 0) {\n  print(max[i < n] f32(i))\n}\n",
        "fn main(n: i64 = 4) {\n  print(max[i < n] f32(i))\n}\n",
    ),
    ErrorRow(
        "R0008",
        "assertion failed",
        "The condition of an `assert` was false.",
        'fn main(n: i64 = -1) {\n  assert n >= 0, "n is {n}"\n}\n',
        'fn main(n: i64 = 1) {\n  assert n >= 0, "n is {n}"\n}\n',
    ),
    ErrorRow(
        "R0009",
        "program failed",
        "The program called `fail` with this message.",
        'fn main() {\n  fail("not today")\n}\n',
        'fn main() {\n  print("today")\n}\n',
    ),
    ErrorRow(
        "R0010",
        "recursion too deep",
        "Functions call each other deeper than the stack is high. A call of itself as a function's last act takes no stack.",
        "fn down(n: i64) -> i64 = if n == 0 { 0 } else { max(n, down(n + 1)) }\n\nfn main() {\n  print(down(1))\n}\n",
        "fn down(n: i64) -> i64 = if n == 0 { 0 } else { max(n, down(n - 1)) }\n\nfn main() {\n  print(down(1))\n}\n",
    ),
    ErrorRow(
        "R0011",
        "out of memory",
        "There is not enough memory for a tensor. On a GPU it is the GPU's memory that counts; the message then says how much the program "
        "holds, and what it plans to.",
        "fn main(n: i64 = 100_000_000_000_000) {\n  var x = for[i < n] 0.0\n  x[n // 2] = 1.0\n  print(x[n - 1])\n}\n",
        "fn main(n: i64 = 100) {\n  var x = for[i < n] 0.0\n  x[n // 2] = 1.0\n  print(x[n - 1])\n}\n",
    ),
    ErrorRow(
        "R0012",
        "service failed",
        "Something outside of the program, such as a file it reads, is missing or damaged. The message says what.",
        'use data\n\nfn main() {\n  let digits = data.mnist("other")\n  print(digits.n)\n}\n',
        'use data\n\nfn main() {\n  let digits = data.mnist("test")\n  print(digits.n)\n}\n',
    ),
    ErrorRow(
        "R0013",
        "negative dimension",
        "A tensor was to be made with a dimension below 0.",
        "fn main(n: i64 = -1) {\n  print(zeros(n))\n}\n",
        "fn main(n: i64 = 1) {\n  print(zeros(n))\n}\n",
    ),
    ErrorRow(
        "R0014",
        "file not read or not written",
        "The system refuses it, or it is no text where text is wanted. The message says why.",
        'use io\n\nfn main() {\n  print(io.read("notes.txt"))\n}\n',
        'use io\n\nfn main() {\n  if io.exists("notes.txt") { print(io.read("notes.txt")) }\n}\n',
    ),
    ErrorRow(
        "R0015",
        "checkpoint does not fit",
        "A file must have the names, element types and shapes of the value that it is loaded for. All that differs is listed. "
        "A damaged file, as this empty one, has none.",
        'use io\n\nfn main() {\n  print(io.load("/dev/null", like = zeros(3)))\n}\n',
        'use io\n\nfn main() {\n  var w = zeros(3)\n  if io.exists("w.safetensors") { w = io.load("w.safetensors", like = w) }\n'
        "  print(w)\n}\n",
    ),
    ErrorRow(
        "R0016",
        "infinity or NaN out of finite numbers",
        "With `--trap-nan`, the program stops where an operation first gives a NaN though no operand is NaN, or an infinity though all "
        "operands are finite. The place is that of the expression; what a derivative computes for it stands there too, and the message "
        "says so.",
        "fn main(x: f32 = 0.0) {\n  print(log(x))\n}\n",
        "fn main(x: f32 = 0.0) {\n  print(log(max(x, 1e-6)))\n}\n",
    ),
    ErrorRow(
        "R0017",
        "tools for GPUs that are not installed",
        "`tlc emit ptx` and `--device cuda` compile kernels with numba-cuda and NVIDIA's compiler, which are the extra `cuda` of this "
        "package. `tlc emit cuda` needs neither.",
        "# tlc emit ptx prog.tl\nfn main() {\n  print(sum[i < 1000] f32(i))\n}\n",
        "# pip install 'tlc[cuda]', then tlc emit ptx prog.tl\nfn main() {\n  print(sum[i < 1000] f32(i))\n}\n",
    ),
    ErrorRow(
        "R0018",
        "no GPU to run on",
        "`--device cuda` needs NVIDIA's driver and a GPU of compute capability 8.0 or more. The message says what is not there. "
        "`--device cuda-emulated` runs the same kernels on the CPU.",
        "# tlc --device cuda prog.tl\nfn main() {\n  print(sum[i < 1000] f32(i))\n}\n",
        "# tlc --device cuda-emulated prog.tl\nfn main() {\n  print(sum[i < 1000] f32(i))\n}\n",
    ),
    ErrorRow(
        "R0019",
        "kernel that failed on the GPU",
        "The driver reports that a kernel could not run or did not end well. Kernels run beside the program, so it may be any that was "
        "begun since the program last waited; `--check-kernels` waits for each, and then the message names the one and its source line. "
        "A kernel that reads or writes outside of its tensors is a fault of the compiler, and `--device cuda-emulated --check-kernels` "
        "helps to find it, with small sizes.",
        "# tlc --device cuda prog.tl\nfn main(n: i64 = 1000) {\n  print(sum[i < n] f32(i))\n}\n",
        "# tlc --device cuda-emulated prog.tl\nfn main(n: i64 = 1000) {\n  print(sum[i < n] f32(i))\n}\n",
    ),
    # ---------------------------------------------------------------- W0xxx: warnings
    ErrorRow(
        "W0001",
        "perhaps a misspelt dimension",
        "A dimension variable of three or more letters is used once, and another name is one letter away from it. It is a dimension of its "
        "own, which is allowed, and seldom meant.",
        "fn f(x: f32[batch, n], y: f32[bacth]) -> f32[batch] = for[b] sum(x[b])\n",
        "fn f(x: f32[batch, n], y: f32[batch]) -> f32[batch] = for[b] y[b] * sum(x[b])\n",
    ),
    ErrorRow(
        "W0002",
        "lost in a loop",
        "A `let` or `var` in a loop is made of a variable of the same name outside, and never read: it is a new variable, gone at the end "
        "of the round, and the next round begins with the outer one again.",
        "fn f(x: f32) -> f32 {\n  let w = x\n  for i in 0..3 { let w = 0.5 * w }\n  w\n}\n",
        "fn f(x: f32) -> f32 {\n  var w = x\n  for i in 0..3 { w = 0.5 * w }\n  w\n}\n",
    ),
]

ERRORS: dict[str, ErrorRow] = {row.code: row for row in _ROWS}

assert len(ERRORS) == len(_ROWS), "a code has two rows"
