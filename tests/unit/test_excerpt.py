"""One function out of the text of any stage."""

from __future__ import annotations

import pytest

from tlc.driver.excerpt import definitions, excerpt

TEXTS = {
    "typed": ("fn relu[f32](x: f32) -> f32 {\n  x\n}\n\nfn main() {\n  1\n}\n\n# main is main\n", ["relu[f32]", "main"]),
    "ssa": ('func @"relu[f32]"(%x: f32) -> f32 {\nentry:\n  return %x\n}\n\nfunc @main() {\nentry:\n  return\n}\n', ["relu[f32]", "main"]),
    "ast": ("const N = 1\nfn relu[T: float](x: T) -> T = x @ x\nfn main() {\n  1\n}\n", ["relu[T: float]", "main"]),
    "graph": ("graph main.then {\n  keep y\n}\n\ngraph main.exit {\n  keep z\n}\n", ["main.then", "main.exit"]),
    "kernels": ("kernel map_0(y0: out f32[2]) {\n}\n\nkernel map_1(y0: out f32[2]) {\n}\n", ["map_0", "map_1"]),
    "c": ("/* what */\n\n#include <math.h>\n\nstatic inline float f(float x) {\n  return x;\n}\n\n/* a */\n/* b */\nvoid g(float *y) {\n}\n", ["f", "g"]),
    "llvm": ('declare i32 @x(i32)\ndefine i32 @"k.map_0"(ptr %c) nounwind {\n}\ndefine void @tlc.free() {\n}\n', ["k.map_0", "tlc.free"]),
}


@pytest.mark.parametrize("stage", TEXTS)
def test_names(stage: str) -> None:
    text, names = TEXTS[stage]
    assert [name for name, _ in definitions(text)] == names


def test_excerpts() -> None:
    assert excerpt(TEXTS["typed"][0], "relu") == "fn relu[f32](x: f32) -> f32 {\n  x\n}"
    assert excerpt(TEXTS["typed"][0], "main") == "fn main() {\n  1\n}"
    assert excerpt(TEXTS["ssa"][0], "relu[f32]").startswith('func @"relu[f32]"')
    assert excerpt(TEXTS["graph"][0], "main") == TEXTS["graph"][0].strip()
    assert excerpt(TEXTS["llvm"][0], "map_0").startswith('define i32 @"k.map_0"')
    assert excerpt(TEXTS["kernels"][0], "map") == ""
