"""What a row of `benchmarks/tensor.py` is for each peer: the same function over the same numbers, by the peer's own means.

`WORK` says each function once, over a small set of operations that each library has under its own names (`Namespace`). NumPy has the
products only; the derivatives are PyTorch's `backward` and JAX's `vjp`. A peer whose module is not installed raises `ModuleNotFoundError`
when it is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Turn = Callable[[], Sequence[Any]]  # does the work once, waits for its end and gives the results
Namespace = Any  # the operations that `WORK` asks for

PROBES = 16  # elements of a result that are compared


def value(seed: int, shape: Sequence[int]) -> Array:
    """What `sample.tl` says."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (((i * (7919 + 2 * seed) + seed) % 1021 - 510).astype(np.float32) * np.float32(0.001953125)).reshape(shape)


def integers(seed: int, shape: Sequence[int]) -> Array:
    """What `ints` of `narrow.tl` says."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (i * (7919 + 2 * seed) % 251 - 125).astype(np.int8).reshape(shape)


def shown(results: Sequence[Any]) -> list[float]:
    """What `sample.tl` prints of each result."""
    out: list[float] = []
    for result in results:
        flat = np.asarray(result).reshape(-1)
        out += [float(flat[p * 2654435761 % flat.size]) for p in range(PROBES)]
        out.append(float(flat.astype(np.float64).mean()))
    return out


def inputs(work: str, size: Mapping[str, Any]) -> list[Array]:
    """The operands of a row, those of the program in its order."""
    match work:
        case "product":
            a, b = value(1, (size["m"], size["k"])), value(2, (size["k"], size["n"]))
            if size["turn_a"]:
                a = value(1, (size["k"], size["m"])).T
            if size["turn_b"]:
                b = value(2, (size["n"], size["k"])).T
            return [a, b]
        case "narrow":
            make = integers if size["elem"] == "i8" else value
            return [make(1, (size["m"], size["k"])), make(2, (size["k"], size["n"]))]
        case "batched":
            return [value(1, (size["batch"], size["m"], size["k"])), value(2, (size["batch"], size["k"], size["n"]))]
        case "attention":
            shape = (size["heads"], size["length"], size["size"])
            return [4 * value(1, shape), value(2, shape), value(3, shape), value(4, shape)]
        case "vectors":
            x, w, t = value(1, (size["k"],)), value(2, (size["k"], size["n"])), value(3, (size["n"], size["k"]))
            return {"vector_matrix": [x, w], "matrix_vector": [t, x], "dot": [w.reshape(-1)], "argmax": [t]}[size["what"]]
        case _:
            n, m = size["shape"]
            x, bias, scale, other, dy = 4 * value(1, (n, m)), value(2, (m,)), 1 + 0.5 * value(3, (m,)), value(4, (n, m)), value(5, (n, m))
            own = {"softmax": [x], "layernorm": [x, bias, scale], "gelu_residual": [x, bias, other]}
            return [*own.get(size["what"], [x, bias]), dy]


# fmt: off
WORK: dict[str, Callable[..., Any]] = {
    "product":       lambda f, a, b: f.matmul(a, b),
    "batched":       lambda f, a, b: f.matmul(a, b),
    "narrow":        lambda f, a, b: f.wide_matmul(a, b),
    "vector_matrix": lambda f, x, w: f.matmul(x, w),
    "matrix_vector": lambda f, w, x: f.matmul(w, x),
    "dot":           lambda f, x: f.dot(x, x),
    "argmax":        lambda f, x: f.argmax(x),
    "gelu_erf":      lambda f, x, bias: f.gelu(x + bias),
    "gelu_tanh":     lambda f, x, bias: f.gelu_tanh(x + bias),
    "gelu_residual": lambda f, x, bias, other: f.gelu(x + bias) * 0.5 + other,
    "softmax":       lambda f, x: f.softmax(x),
    "layernorm":     lambda f, x, bias, scale: f.layernorm(x, scale, bias),
    "attention":     lambda f, q, k, v: f.attention(q, k, v),
}
# fmt: on


def function(work: str, size: Mapping[str, Any]) -> tuple[Callable[..., Any], int]:
    """The function of a row, and how many operands the gradient is of."""
    name = size.get("what", work)
    gradients = {"attention": 3, "softmax": 1, "layernorm": 3}.get(name, 2)
    return WORK[name], gradients if size.get("backward") else 0


def operands(work: str, size: Mapping[str, Any]) -> tuple[list[Array], Array | None]:
    """The operands of the function, and the derivative by its result."""
    found = inputs(work, size)
    if work in ("rows", "attention"):
        return found[:-1], found[-1]
    return found, None


# ---------------------------------------------------------------- the peers


class NumPy:
    def __init__(self, threads: int) -> None:
        self.threads = threads

    def turn(self, work: str, size: Mapping[str, Any]) -> Turn | None:
        if work in ("rows", "attention", "narrow"):
            return None
        data, _ = operands(work, size)
        own = SimpleNamespace(dot=np.dot, argmax=lambda x: np.argmax(x, axis=-1))
        if work in ("product", "batched"):
            out = np.matmul(*data)
            return lambda: (np.matmul(*data, out=out),)
        call, _ = function(work, size)
        own.matmul = np.matmul
        return lambda: (call(own, *data),)


class Torch:
    """PyTorch eager, with its fused attention."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        f = torch.nn.functional
        self.namespace = SimpleNamespace(
            matmul=torch.matmul,
            wide_matmul=lambda a, b: torch._int_mm(a, b) if a.dtype is torch.int8 else torch.matmul(a, b),
            dot=torch.dot,
            argmax=lambda x: torch.argmax(x, dim=-1),
            gelu=f.gelu,
            gelu_tanh=lambda x: f.gelu(x, approximate="tanh"),
            softmax=lambda x: torch.softmax(x, -1),
            layernorm=lambda x, scale, bias: f.layer_norm(x, x.shape[-1:], scale, bias),
            attention=lambda q, k, v: f.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0],
        )

    def compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return call

    def turn(self, work: str, size: Mapping[str, Any]) -> Turn | None:
        torch = self.torch
        arrays, dy = operands(work, size)
        data = [torch.from_numpy(x) for x in arrays]
        if size.get("elem") in ("bf16", "f16"):
            data = [x.to(torch.bfloat16 if size["elem"] == "bf16" else torch.float16) for x in data]
        call, gradients = function(work, size)
        own = self.compiled(lambda *args: call(self.namespace, *args))
        if not gradients:
            if type(self) is Torch and work in ("product", "batched"):
                out = torch.matmul(*data)
                return lambda: (torch.matmul(*data, out=out),)

            def forward() -> Sequence[Any]:
                with torch.no_grad():
                    y = own(*data)
                    return (y.float() if y.dtype in (torch.bfloat16, torch.float16) else y,)

            return forward
        for x in data[:gradients]:
            x.requires_grad_()
        derivative = torch.from_numpy(dy)

        def both() -> Sequence[Any]:
            for x in data[:gradients]:
                x.grad = None
            y = own(*data)
            y.backward(derivative)
            return (y.detach(), *(x.grad for x in data[:gradients]))

        return both


class Compiled(Torch):
    """`torch.compile` of the function; its backward pass is compiled with it."""

    def compiled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        self.torch.compiler.reset()
        return self.torch.compile(call, dynamic=False)


class Jax:
    def __init__(self, threads: int) -> None:
        os.environ["JAX_PLATFORMS"] = "cpu"
        if threads == 1:
            os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        import jax
        import jax.numpy as jnp

        self.jax = jax

        def layernorm(x: Any, scale: Any, bias: Any) -> Any:
            centred = x - x.mean(-1, keepdims=True)
            return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * scale + bias

        def attention(q: Any, k: Any, v: Any) -> Any:
            scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5)
            mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
            return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v

        self.namespace = SimpleNamespace(
            matmul=jnp.matmul,
            wide_matmul=lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32 if a.dtype == jnp.int8 else jnp.float32),
            dot=jnp.dot,
            argmax=lambda x: jnp.argmax(x, axis=-1),
            gelu=lambda x: jax.nn.gelu(x, approximate=False),
            gelu_tanh=lambda x: jax.nn.gelu(x, approximate=True),
            softmax=lambda x: jax.nn.softmax(x, -1),
            layernorm=layernorm,
            attention=attention,
        )

    def turn(self, work: str, size: Mapping[str, Any]) -> Turn | None:
        jax = self.jax
        arrays, dy = operands(work, size)
        turned = [x.ndim == 2 and not x.flags.c_contiguous for x in arrays]  # a transposed operand stays one
        data = [jax.numpy.asarray(x.T if t else x) for x, t in zip(arrays, turned, strict=True)]
        if size.get("elem") in ("bf16", "f16"):
            data = [x.astype(jax.numpy.bfloat16 if size["elem"] == "bf16" else jax.numpy.float16) for x in data]
        call, gradients = function(work, size)

        def own(*args: Any) -> Any:
            return call(self.namespace, *(x.T if t else x for x, t in zip(args, turned, strict=True)))

        if not gradients:
            forward = jax.jit(own)
            return lambda: (jax.block_until_ready(forward(*data)),)

        def both(dy: Any, *args: Any) -> Any:
            y, backward = jax.vjp(lambda *some: own(*some, *args[gradients:]), *args[:gradients])
            return (y, *backward(dy))

        compiled, derivative = jax.jit(both), jax.numpy.asarray(dy)
        return lambda: tuple(jax.block_until_ready(compiled(derivative, *data)))


class Onnx:
    """ONNX Runtime: one node a row, or two."""

    def __init__(self, threads: int) -> None:
        import onnx
        import onnxruntime

        self.onnx, self.runtime, self.threads = onnx, onnxruntime, threads

    def turn(self, work: str, size: Mapping[str, Any]) -> Turn | None:
        what = size.get("what", work)
        if size.get("backward") or size.get("turn_a") or size.get("turn_b"):
            return None
        node = self.onnx.helper.make_node
        nodes = {
            "product": [node("MatMul", ["x0", "x1"], ["y"])],
            "batched": [node("MatMul", ["x0", "x1"], ["y"])],
            "vector_matrix": [node("MatMul", ["x0", "x1"], ["y"])],
            "matrix_vector": [node("MatMul", ["x0", "x1"], ["y"])],
            "argmax": [node("ArgMax", ["x0"], ["y"], axis=-1, keepdims=0)],
            "softmax": [node("Softmax", ["x0"], ["y"], axis=-1)],
            "layernorm": [node("LayerNormalization", ["x0", "x2", "x1"], ["y"], axis=-1)],
            "gelu_erf": [node("Add", ["x0", "x1"], ["z"]), node("Gelu", ["z"], ["y"])],
            "gelu_tanh": [node("Add", ["x0", "x1"], ["z"]), node("Gelu", ["z"], ["y"], approximate="tanh")],
        }.get(what)
        if nodes is None:
            return None
        data, _ = operands(work, size)
        helper, real = self.onnx.helper, self.onnx.TensorProto.FLOAT
        given = [helper.make_tensor_value_info(f"x{k}", real, x.shape) for k, x in enumerate(data)]
        kind = self.onnx.TensorProto.INT64 if what == "argmax" else real
        graph = helper.make_graph(nodes, "row", given, [helper.make_tensor_value_info("y", kind, None)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for k, x in enumerate(data):
            binding.bind_cpu_input(f"x{k}", np.ascontiguousarray(x))
        first = session.run(None, {f"x{k}": x for k, x in enumerate(data)})[0]
        out = self.runtime.OrtValue.ortvalue_from_numpy(np.zeros_like(first))
        binding.bind_ortvalue_output("y", out)

        def turn() -> Sequence[Any]:
            session.run_with_iobinding(binding)
            return (out.numpy(),)

        return turn


PEERS: dict[str, Callable[[int], Any]] = {"numpy": NumPy, "torch": Torch, "compile": Compiled, "jax": Jax, "onnx": Onnx}
