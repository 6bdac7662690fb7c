"""The elementary functions as our own code, the same bits on every backend.

Each function is written once, over an abstract arithmetic of the scalar ops in `frontend/ops.py` (no op that is itself
elementary). `NumpyArith` evaluates it (the meaning, used by interpreters and by constant folding); the kernel and host
stages expand it into their own instructions through the same text. There are no branches: special values come
right by the arithmetic itself or by a `select`, so that every lane of a vector takes the same path.

Largest errors, in units in the last place, over the whole range: exp 1, log 1, sin and cos 1.5, expm1, log1p, tanh, tan and erf 4,
pow 1 (f32) and 8 (f64). An angle of 2^51 or more, where neighbours are half a radian apart, counts as 0.

`iterations` is of integers, written so for the same reason: passes see one op, and every backend expands it alike. So are `dot2`, `dot4`,
`fma2` and `ldexp`, which processors have as instructions: a backend that knows of one prints that.

Sources: reduction by Cody and Waite (1980); log by the series of fdlibm (Sun, 1993); sine and cosine kernels by fdlibm
(f64) and Cephes (Moshier; f32); erf of f64 by interpolation of erf(x)/x in x^2 and of exp(x^2) erfc(x) in (x - 3)/(x + 3) at
Chebyshev nodes. The series of exp and erf of f32 have the least largest error, found by least squares with Lawson's weights (1961).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tlc.frontend.narrow_reals import NARROW
from tlc.frontend.records import dataclass
from tlc.frontend.types import Elem

# name -> number of operands
FUNCTIONS: dict[str, int] = {
    "exp": 1, "expm1": 1, "log": 1, "log1p": 1, "sin": 1, "cos": 1, "tan": 1, "tanh": 1, "erf": 1, "pow": 2,
}  # fmt: skip
INTEGER_FUNCTIONS: dict[str, int] = {"iterations": 3}
WORD_FUNCTIONS: dict[str, int] = {"dot2": 3, "dot4": 3}  # of `i32` words that hold several numbers
PAIR_FUNCTIONS: dict[str, int] = {"fma2": 3, "fma2_normal": 3}  # the same of two `bf16` in the bits of an `f32`
SCALE_FUNCTIONS: dict[str, int] = {"ldexp": 2}  # of reals
PROMISING = frozenset({"fma2_normal", "ldexp"})  # they are what they say of some operands only


class Arith(Protocol):
    """What an expansion may do: constants and scalar ops, `elem` being the element type of the result."""

    def const(self, value: float | int | bool, elem: Elem) -> Any: ...

    def op(self, name: str, elem: Elem, *args: Any) -> Any: ...


class NumpyArith:
    """Evaluates with NumPy, by the rows of `frontend/ops.py`."""

    def const(self, value: float | int | bool, elem: Elem) -> Any:
        from tlc.frontend.ops import DTYPES

        return DTYPES[elem].type(value)

    def op(self, name: str, elem: Elem, *args: Any) -> Any:
        from tlc.frontend.ops import SCALAR_OPS

        return SCALAR_OPS[name].evaluate(elem, *args)


def expand(name: str, arith: Arith, elem: Elem, *args: Any) -> Any:
    """The function `name` on values of `elem`, as ops of `arith`. Narrow reals are computed in f32."""
    if elem in NARROW:
        wide = [arith.op("convert", Elem.F32, a) for a in args]
        return arith.op("convert", elem, expand(name, arith, Elem.F32, *wide))
    return _TABLE[name](*(Num(arith, elem, a) for a in args)).value


# ---------------------------------------------------------------- notation


@dataclass(frozen=True, eq=False)
class Num:
    """A value under construction, so that formulas read as formulas. Python numbers become constants of the same type."""

    arith: Arith
    elem: Elem
    value: Any

    def of(self, x: Num | float | int) -> Num:
        return x if isinstance(x, Num) else Num(self.arith, self.elem, self.arith.const(x, self.elem))

    def op(self, name: str, *args: Num | float | int, elem: Elem | None = None) -> Num:
        elem = elem or self.elem
        return Num(self.arith, elem, self.arith.op(name, elem, self.value, *(self.of(a).value for a in args)))

    def test(self, name: str, x: Num | float | int) -> Num:
        return self.op(name, x, elem=Elem.BOOL)

    def __add__(self, x: Num | float | int) -> Num:
        return self.op("add", x)

    def __sub__(self, x: Num | float | int) -> Num:
        return self.op("sub", x)

    def __mul__(self, x: Num | float | int) -> Num:
        return self.op("mul", x)

    def __rsub__(self, x: float | int) -> Num:
        return self.of(x) - self

    def __rmul__(self, x: float | int) -> Num:
        return self.of(x) * self

    def __truediv__(self, x: Num | float | int) -> Num:
        return self.op("div", x)

    def __rtruediv__(self, x: float | int) -> Num:
        return self.of(x) / self

    def __neg__(self) -> Num:
        return self.op("neg")

    def __lt__(self, x: Num | float | int) -> Num:
        return self.test("lt", x)

    def __gt__(self, x: Num | float | int) -> Num:
        return self.test("gt", x)

    def equals(self, x: Num | float | int) -> Num:
        return self.test("eq", x)

    def __and__(self, x: Num | int) -> Num:
        return self.op("and", x)

    def __or__(self, x: Num | int) -> Num:
        return self.op("or", x)

    def __lshift__(self, x: int) -> Num:
        return self.op("shl", x)

    def __rshift__(self, x: int) -> Num:
        return self.op("shr", x)

    def fma(self, x: Num | float, y: Num | float) -> Num:
        """self * x + y, rounded once."""
        return self.op("fma", x, y)

    def to(self, elem: Elem) -> Num:
        return self.op("convert", elem=elem)

    def bits(self) -> Num:
        return self.op("bitcast", elem=_format(self).bits)

    def real(self, elem: Elem) -> Num:
        return self.op("bitcast", elem=elem)

    def polynomial(self, coefficients: tuple[float, ...]) -> Num:
        """Horner's rule with fused steps; the highest coefficient first."""
        p = self.of(coefficients[0])
        for c in coefficients[1:]:
            p = p.fma(self, c)
        return p


def select(cond: Num, x: Num, y: Num | float) -> Num:
    return Num(x.arith, x.elem, x.arith.op("select", x.elem, cond.value, x.value, x.of(y).value))


@dataclass(frozen=True)
class Format:
    """A binary format and the constants that depend on it. `magic` is 1.5 * 2^mantissa: adding it rounds to an integer in the low bits."""

    bits: Elem
    mantissa: int
    bias: int
    magic: float
    magic_bits: int
    sign_bit: int
    ln2_hi: float  # with enough trailing zeros that k * ln2_hi is exact
    ln2_lo: float
    exp_least: float  # below: 0
    exp_series: tuple[float, ...]  # (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2; of even degree: e^r by it is positive everywhere
    expm1_series: tuple[float, ...]  # (e^r - 1 - r) / r^2 for |r| <= 1/2
    sqrt_half_bits: int
    log_series: tuple[float, ...]  # of fdlibm, in s^2
    erf_end: float  # from here on erf rounds to 1


def _taylor(highest: int) -> tuple[float, ...]:
    """1/n! for n from `highest` down to 2."""
    factorial, out = 1.0, []
    for n in range(1, highest + 1):
        factorial *= n
        out.append(1.0 / factorial)
    return tuple(reversed(out[1:]))


_F32 = Format(
    bits=Elem.I32, mantissa=23, bias=127, magic=12582912.0, magic_bits=0x4B400000, sign_bit=-0x80000000,
    ln2_hi=0.693359375, ln2_lo=-2.12194440e-4,
    exp_least=-104.0,
    exp_series=(1.38146117e-3, 8.368710531e-3, 4.166838743e-2, 0.1666652068, 0.4999999345),
    expm1_series=_taylor(10),
    sqrt_half_bits=0x3F3504F3,
    log_series=(0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693),
    erf_end=4.0,
)  # fmt: skip
_F64 = Format(
    bits=Elem.I64, mantissa=52, bias=1023, magic=6755399441055744.0, magic_bits=0x4338000000000000, sign_bit=-0x8000000000000000,
    ln2_hi=6.93147180369123816490e-01, ln2_lo=1.90821492927058770002e-10,
    exp_least=-746.0,
    exp_series=_taylor(14),
    expm1_series=_taylor(16),
    sqrt_half_bits=0x3FE6A09E667F3BCD,
    log_series=(1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
                2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01),
    erf_end=6.0,
)  # fmt: skip

# erf of f32: log(erfc(x))/x for 0 <= x <= 4
_LOG_ERFC = (-4.070792045e-5, 3.810006134e-4, -1.25174658e-3, -2.057160778e-4, 0.01932171602, -0.1028144107, -0.6366164968, -1.128379207)
# erf of f64: erf(x)/x in x^2, |x| <= 1
_ERF_SMALL = (5.9571761477489114e-11, -1.13728488567916737e-9, 1.46597752740474358e-8, -1.6350312701054695e-7, 1.6461000484121368e-6,
              -1.49255952668311816e-5, 1.20553311116427109e-4, -8.54832698083378991e-4, 5.22397762481801447e-3,
              -2.68661706450767932e-2, 0.112837916709548787, -0.376126389031837481, 1.12837916709551257)  # fmt: skip
# exp(x^2) erfc(x) in (x - 3)/(x + 3)
_ERF_TAIL = (3.09971112486119126e-8, 2.10069323179454632e-8, -2.29608366401726556e-7, -2.9026520043928663e-7, 1.25192611880226668e-6,
              2.11928344605311132e-6, -7.97811938593217197e-6, -1.28604218312008306e-5, 6.40565573700285709e-5, 4.52552941212963236e-5,
              -5.97061948641696309e-4, 7.07746439062207063e-4, 4.26913633283938682e-3, -2.43924993186741163e-2, 7.16658371979782533e-2,
              -0.150115936500777194, 0.245603801712330879, -0.326233560043037228, 0.17900115118138995)  # fmt: skip

_LOG2_E, _LN2 = 1.4426950408889634, 0.6931471805599453
_TWO_OVER_PI = 0.6366197723675814
_LARGEST_ANGLE = 2.0**51
_PI_HALF = (1.5707963267948966, 6.123233995736766e-17)
_SIN = {
    Elem.F32: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    Elem.F64: (1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
               8.33333333332248946124e-03, -1.66666666666666324348e-01),
}  # fmt: skip
_COS = {
    Elem.F32: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    Elem.F64: (-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513506633035e-07, 2.48015872894767294178e-05,
               -1.38888888888741095749e-03, 4.16666666666666019037e-02),
}  # fmt: skip


def _format(x: Num) -> Format:
    return _F32 if x.elem is Elem.F32 else _F64


def _round(x: Num, by: Num | float) -> tuple[Num, Num]:
    """x * by to the nearest integer k, |k| < 2^(mantissa - 2): as a real, and the bits of k + magic. In these, k stands in the low places,
    and above it there is nothing that shifts by the mantissa would keep.
    """
    f = _format(x)
    t = x.fma(by, f.magic)
    return t - f.magic, t.bits()


def _power_of_two(k: Num, elem: Elem) -> Num:
    """2^k, in the normal range, for what `_round` gives."""
    f = _F32 if elem is Elem.F32 else _F64
    return ((k + f.bias) << f.mantissa).real(elem)


def _copysign(magnitude: Num, sign: Num) -> Num:
    f = _format(sign)
    return (magnitude.bits() | (sign.bits() & f.sign_bit)).real(sign.elem)


# ---------------------------------------------------------------- functions


def exp(x: Num) -> Num:
    """2^k e^r with x = k ln 2 + r. Where x is beyond all results, r is any number or none, and k alone says so."""
    return _exp_sum(x, None)


def _exp_sum(x: Num, low: Num | None) -> Num:
    """exp(x + low), where low is a correction below the last place of x."""
    f = _format(x)
    y = select(x < f.exp_least, x.of(f.exp_least), x)
    k, _ = _round(y, _LOG2_E)
    r = k.fma(-f.ln2_lo, k.fma(-f.ln2_hi, y))
    if low is not None:
        r = r + low
    return r.polynomial((*f.exp_series, 1.0, 1.0)).op("ldexp", k)


def ldexp(x: Num, k: Num) -> Num:
    """x 2^k for 1/2 <= |x| <= 2 and an integer k > -2 bias, rounded once: the factor goes in two steps, of which the first is exact. Where
    k > 2 bias, infinity of any positive x, and of a NaN, too, if k is infinite.
    """
    f = _format(k)
    n = (k + f.magic).bits()
    half = n >> 1
    y = x * _power_of_two(half, x.elem) * _power_of_two(n - half, x.elem)
    return select(k > 2.0 * f.bias, x.of(float("inf")), y)


def expm1(x: Num) -> Num:
    """The series for |x| <= 1/2; elsewhere exp(x) - 1 loses at most two bits."""
    series = (x * x).fma(x.polynomial(_format(x).expm1_series), x)
    return select(x.op("abs") > 0.5, exp(x) - 1.0, select(x.equals(0.0), x, series))


def _log_parts(x: Num) -> tuple[Num, Num]:
    """x = 2^k m with sqrt(1/2) <= m < sqrt(2): k as a real, and m - 1 (exact). x > 0 is finite."""
    f = _format(x)
    tiny = x < 2.0 ** (2 - f.bias)
    ix = select(tiny, x * 2.0 ** (f.mantissa + 2), x).bits()
    one = f.bias << f.mantissa
    ix = ix + (one - f.sqrt_half_bits)
    n = (ix >> f.mantissa) - f.bias
    k = (n + f.magic_bits).real(x.elem) - f.magic
    k = select(tiny, k - float(f.mantissa + 2), k)
    m = ((ix & ((1 << f.mantissa) - 1)) + f.sqrt_half_bits).real(x.elem)
    return k, m - 1.0


def log(x: Num) -> Num:
    """k ln 2 + log(1 + f), by s = f / (2 + f) and the series of fdlibm."""
    fmt = _format(x)
    k, f = _log_parts(x)
    s = f / (f + 2.0)
    z = s * s
    r = z * z.polynomial(fmt.log_series)
    half_square = 0.5 * f * f
    y = k.fma(fmt.ln2_hi, k.fma(fmt.ln2_lo, s * (half_square + r)) - half_square + f)
    return _log_special(x, y)


def _log_special(x: Num, y: Num) -> Num:
    y = select(x.test("lt", float("inf")), y, x)  # infinity and NaN
    y = select(x < 0.0, x.of(float("nan")), y)
    return select(x.equals(0.0), x.of(float("-inf")), y)


def log1p(x: Num) -> Num:
    """log(u) x / (u - 1) with u = 1 + x rounded (Kahan)."""
    u = x + 1.0
    y = log(u) * (x / (u - 1.0))
    y = select(u.equals(1.0), x, y)
    return select(u.equals(float("inf")), u, y)


def tanh(x: Num) -> Num:
    """(0 - t) / (t + 2) with t = exp(y) - 1 for y = -2|x|, that is 2^k (e^r - 1) + (2^k - 1) with y = k ln 2 + r: of a small y, k is 0. Of
    y = -40 t rounds to -1.
    """
    f = _format(x)
    y = x.op("abs") * -2.0
    y = select(y < -40.0, y.of(-40.0), y)
    k, n = _round(y, _LOG2_E)
    r = k.fma(-f.ln2_lo, k.fma(-f.ln2_hi, y))
    scale = _power_of_two(n, x.elem)
    t = (r * r).fma(r.polynomial(f.exp_series), r).fma(scale, scale - 1.0)
    return _copysign((0.0 - t) / (t + 2.0), x)


def _quadrant(x: Num) -> tuple[Num, Num, Num]:
    """x less the nearest multiple of pi/2, and bits 0 and 1 of which multiple it is (as comparisons). The reduction is in f64."""
    wide = x.to(Elem.F64) if x.elem is Elem.F32 else x
    wide = select(wide.op("abs") < _LARGEST_ANGLE, wide, wide - wide)  # infinity gives NaN
    k, n = _round(wide, _TWO_OVER_PI)
    r = k.fma(-_PI_HALF[1], k.fma(-_PI_HALF[0], wide))
    return (r.to(x.elem) if x.elem is Elem.F32 else r), (n & 1).test("ne", 0), (n & 2).test("ne", 0)


def _sin_cos(r: Num) -> tuple[Num, Num]:
    """Sine and cosine of |r| <= pi/4."""
    z = r * r
    return (r * z).fma(z.polynomial(_SIN[r.elem]), r), (z * z).fma(z.polynomial(_COS[r.elem]), 1.0 - 0.5 * z)


def sin(x: Num) -> Num:
    """Sine or cosine of the remainder, by the quadrant."""
    r, odd, upper = _quadrant(x)
    s, c = _sin_cos(r)
    y = select(odd, c, select(x.equals(0.0), x, s))
    return select(upper, -y, y)


def cos(x: Num) -> Num:
    """Cosine or sine of the remainder; negative in the second and third quadrants."""
    r, odd, upper = _quadrant(x)
    s, c = _sin_cos(r)
    y = select(odd, s, c)
    negative = Num(x.arith, Elem.BOOL, x.arith.op("xor", Elem.BOOL, odd.value, upper.value))
    return select(negative, -y, y)


def tan(x: Num) -> Num:
    """s / c, or -c / s in odd quadrants."""
    r, odd, _ = _quadrant(x)
    s, c = _sin_cos(r)
    return select(odd, -c, select(x.equals(0.0), x, s)) / select(odd, s, c)


def erf(x: Num) -> Num:
    """f32: -(e^y - 1) for y = log(erfc|x|), by e^y - 1 = 2^k (e^r - 1) + (2^k - 1) as `tanh` has it: of a small y, k is 0. f64: x P(x^2)
    for |x| <= 1, else 1 - exp(-x^2) Q((|x| - 3)/(|x| + 3)). With the sign of x.
    """
    f = _format(x)
    a = x.op("abs")
    a = select(a > f.erf_end, a.of(f.erf_end), a)
    if x.elem is Elem.F32:
        y = a * a.polynomial(_LOG_ERFC)
        k, n = _round(y, _LOG2_E)
        r = k.fma(-_LN2, y)
        scale = _power_of_two(n, x.elem)
        return _copysign(scale.fma(-(r * r).fma(r.polynomial(f.exp_series), r), 1.0 - scale), x)
    square = a * a
    tail = 1.0 - exp(-square) * ((a - 3.0) / (a + 3.0)).polynomial(_ERF_TAIL)
    return select(a > 1.0, _copysign(tail, x), x * square.polynomial(_ERF_SMALL))


def pow(x: Num, y: Num) -> Num:
    """exp(y log|x|), the logarithm with extra digits; signs, zeros and infinities as IEEE 754 has them."""
    a = x.op("abs")
    if x.elem is Elem.F32:
        magnitude = exp(y.to(Elem.F64) * log(a.to(Elem.F64))).to(Elem.F32)
    else:
        magnitude = _pow64(a, y)
    whole = y.op("trunc").equals(y)
    half = y * 0.5
    odd_bits = half.op("trunc").test("ne", half)
    odd = Num(x.arith, Elem.BOOL, x.arith.op("and", Elem.BOOL, whole.value, odd_bits.value))
    z = select(odd, _copysign(magnitude, x), magnitude)
    z = select(x < 0.0, select(whole, z, float("nan")), z)
    z = select(x.equals(float("-inf")), select(odd, _copysign(magnitude, x), magnitude), z)
    one = Num(x.arith, Elem.BOOL, x.arith.op("or", Elem.BOOL, y.equals(0.0).value, x.equals(1.0).value))
    minus_one = Num(x.arith, Elem.BOOL, x.arith.op("and", Elem.BOOL, x.equals(-1.0).value, y.op("abs").equals(float("inf")).value))
    one = Num(x.arith, Elem.BOOL, x.arith.op("or", Elem.BOOL, one.value, minus_one.value))
    return select(one, x.of(1.0), z)


def _pow64(a: Num, y: Num) -> Num:
    """The logarithm as a sum of two doubles: 2s is corrected by the remainder of its division, k ln 2 is a sum itself."""
    fmt = _F64
    k, f = _log_parts(a)
    d = f + 2.0
    s = f / d
    remainder = s.fma(-d, f) - s * (f - (d - 2.0))  # f - s (2 + f), exactly enough
    s_low = remainder / d
    z = s * s
    z_low = s.fma(s, -z)
    # log(1 + f) = 2s + s * R(s^2); the leading 2/3 s^3 carries its own low part
    cube = s * z
    cube_low = s.fma(z, -cube) + s * z_low
    two_thirds, two_thirds_low = 0.6666666666666666, 3.700743415417188e-17
    lead = cube * two_thirds
    lead_low = cube.fma(two_thirds, -lead) + cube.fma(two_thirds_low, cube_low * two_thirds)
    rest = cube * z * z.polynomial(_ATANH_REST)
    first = k * fmt.ln2_hi
    hi, e1 = _two_sum(first, s * 2.0)
    hi, e2 = _two_sum(hi, lead)
    low = e1 + e2 + (rest + lead_low + s_low * 2.0 + k * fmt.ln2_lo)
    hi, low = _two_sum(hi, low)
    hi_special = _log_special(a, hi)
    low = select(hi_special.op("abs") < float("inf"), low, 0.0)
    product = hi_special * y
    correction = hi_special.fma(y, -product) + low * y
    correction = select(product.op("abs") < 800.0, correction, 0.0)
    return _exp_sum(product, correction)


# 2/5, 2/7, ...: atanh's series, whose remainder after s^25 is below the last place for |s| < 0.172
_ATANH_REST = tuple(2.0 / n for n in range(25, 3, -2))


def _two_sum(a: Num, b: Num) -> tuple[Num, Num]:
    """a + b = s + e exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def iterations(lo: Num, hi: Num, step: Num) -> Num:
    """How many of lo, lo + step, lo + 2 * step, ... come before hi. The step is not 0: a check stands before.

    It is the difference of the quotients by `step` of the last number in the range and of the first, and one more where the
    remainder of the last is not behind that of the first: no intermediate result is larger than the range, so nothing wraps.
    """
    up = step > 0
    last = hi - select(up, step.of(1), step.of(-1))
    quotients = last.op("floordiv", step) - lo.op("floordiv", step)
    first_rest, last_rest = lo.op("mod", step), last.op("mod", step)
    more = _either(up, last_rest.test("ge", first_rest), first_rest.test("ge", last_rest)).op("convert", elem=Elem.I64)
    runs = _either(up, lo < hi, hi < lo)
    return select(runs, quotients + more, step.of(0))


def dot2(a: Num, b: Num, c: Num) -> Num:
    """c + a0 b0 + a1 b1 for the signed halves of two words, lowest first; sums wrap."""
    return c + _part(a, 0, 16) * _part(b, 0, 16) + _part(a, 1, 16) * _part(b, 1, 16)


def dot4(a: Num, b: Num, c: Num) -> Num:
    """c + a0 b0 + a1 b1 + a2 b2 + a3 b3 for the signed bytes of one word and the unsigned ones of the other, lowest first; sums wrap."""
    for k in range(4):
        c = c + _part(a, k, 8) * ((b.op("shr", 8 * k) if k else b) & 255)
    return c


def fma2(x: Num, y: Num, c: Num) -> Num:
    """c + x0 y0, then that + x1 y1, each a fused multiply-add, for the two `bf16` in the bits of x and of y, the higher half first.

    `fma2_normal` is the same with a promise: no factor and no sum that comes up is subnormal. The instructions of processors take
    such a number for 0.
    """
    for k in (1, 0):
        a, b = (_half(word, k) for word in (x, y))
        c = a.op("fma", b, c)
    return c


def _half(word: Num, k: int) -> Num:
    """The higher (1) or lower `bf16` in the bits of an `f32`."""
    bits = word.op("bitcast", elem=Elem.I32)
    return (bits & -0x10000 if k else bits.op("shl", 16)).op("bitcast", elem=Elem.F32)


def _part(word: Num, k: int, bits: int) -> Num:
    """The k-th signed number of some bits in a word of 32."""
    above = 32 - bits * (k + 1)
    return (word.op("shl", above) if above else word).op("shr", 32 - bits)


def _either(cond: Num, yes: Num, no: Num) -> Num:
    """`yes` where the condition holds, else `no`, of bools."""
    return Num(cond.arith, Elem.BOOL, cond.arith.op("select", Elem.BOOL, cond.value, yes.value, no.value))


_TABLE: dict[str, Callable[..., Num]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "sin": sin, "cos": cos, "tan": tan, "tanh": tanh, "erf": erf, "pow": pow,
    "iterations": iterations, "dot2": dot2, "dot4": dot4, "fma2": fma2, "fma2_normal": fma2, "ldexp": ldexp,
}  # fmt: skip
_NAMES = {*FUNCTIONS, *INTEGER_FUNCTIONS, *WORD_FUNCTIONS, *PAIR_FUNCTIONS, *SCALE_FUNCTIONS}
assert set(_TABLE) == _NAMES, "an elementary function has no expansion"
