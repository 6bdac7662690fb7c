"""A driver of NVIDIA's GPUs that has none: a library of C, made by gcc, that runs the emulated kernels.

What is started on its stream is only written down, and done when somebody waits: so a host that reads too early reads what was there
before, and a result is wrong. A kernel may be told to fail: then everything fails from that moment on, as on a GPU. A thread without the
context, a kernel or a copy with an address of other than managed memory, and memory that is freed before what uses it is done, are refused.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tlc.backends.c.unit import FLAGS
from tlc.backends.c.unit import emit as emit_c
from tlc.backends.cuda.emit import Unit, emit
from tlc.ssa.ir import Module
from tlc.tensor.kernel.emulate import emulated
from tlc.tensor.kernel.ir import Kernel

DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long address;
/* told from outside */
int devices = 1, major = 9, concurrent = 1, version = 13000, no_memory, room = 1 << 30, fails_at = -1, refuses_at = -1, faulty_text, old_binary, loading_waits;
/* counted */
int early, broken, launches, done, waits, copies, managed, freed, homes, loaded, assembled, blocks, most_dynamic;
static struct { const char *name; address to, from; size_t size; address words[128]; } queue[1 << 16];
static int queued;
static struct { address at; size_t size; } owned[1 << 12];
static int owners;
static __thread void *current;
#define HERE if (current != &launches) return 201

KINDS
static int sees(address at) {
  for (int k = 0; k < owners; k++)
    if (owned[k].at <= at && at <= owned[k].at + owned[k].size) return 1;
  return 0;
}
static int run(const char *f, address *w) {
  RUN
  return 500;
}
static int flush(void) {
  for (int k = 0; k < queued && !broken; k++)
    if (!queue[k].name) memcpy((void *)queue[k].to, (void *)queue[k].from, queue[k].size);
    else if (done++ == fails_at) broken = 700;
    else if (run(queue[k].name, queue[k].words)) abort();
  queued = 0;
  return broken;
}
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *v) { *v = version; return 0; }
int cuDeviceGetCount(int *count) { *count = devices; return 0; }
int cuDeviceGet(int *device, int number) { *device = 7; return 0; }
int cuDeviceGetAttribute(int *value, int number, int device) {
  *value = device != 7 ? -1 : number == 75 ? major : number == 76 ? 0 : number == 83 ? 1 : number == 89 ? concurrent : -1;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &launches; return device == 7 ? 0 : 101; }
int cuCtxSetCurrent(void *context) { current = context; return context != &launches ? 201 : launches ? broken : 0; }
int cuStreamCreate(void **stream, unsigned flags) { HERE; *stream = &queue; return flags == 1 ? 0 : 1; }
int cuMemGetInfo_v2(size_t *available, size_t *total) { HERE; *available = *total = room; return 0; }
int cuMemAllocManaged(address *at, size_t size, unsigned flags) {
  HERE;
  if (broken || no_memory) return broken ? broken : 2;
  if (!size || owners == 1 << 12) return 1;
  managed++;
  size_t whole = (size + 65535) / 65536 * 65536;
  *at = (address)memset(aligned_alloc(65536, whole), 0x5a, whole);
  owned[owners].at = *at, owned[owners++].size = size;
  return flags == 1 ? 0 : 1;
}
int cuMemAdvise(address at, size_t size, int advice, int device) {
  homes++;
  return at % 4096 || advice != 3 || (device != 7 && device != -1);
}
int cuMemFree_v2(address at) {
  HERE;
  for (int k = 0; k < owners; k++)
    if (owned[k].at == at) {
      if (queued) early++, flush();
      owned[k] = owned[--owners];
      freed++;
      free((void *)at);
      return broken;
    }
  return 1;
}
int cuMemcpyAsync(address to, address from, size_t size, void *stream) {
  HERE;
  if (broken || stream != &queue) return broken ? broken : 400;
  if (!sees(to) || !sees(from)) return 1;
  copies++;
  queue[queued].name = 0, queue[queued].to = to, queue[queued].from = from, queue[queued++].size = size;
  return 0;
}
int cuLinkCreate_v2(unsigned n, int *options, void **values, void **state) {
  HERE;
  if (broken) return broken;
  if (n != 2 || options[0] != 5 || options[1] != 6) return 1;
  *state = values[0];
  return 0;
}
int cuLinkAddData_v2(void *state, int type, const char *data, size_t size, const char *name, unsigned n, int *options, void **values) {
  if (type != 1 || strlen(data) + 1 != size || n) return 1;
  if (faulty_text) strcpy(state, "ptxas fatal : a line that is none");
  return faulty_text ? 218 : 0;
}
int cuLinkComplete(void *state, void **binary, size_t *size) { assembled++; *binary = "CUBIN"; *size = 6; return 0; }
int cuLinkDestroy(void *state) { return 0; }
int cuModuleLoadData(void **module, const char *binary) {
  HERE;
  if (loading_waits && flush()) return broken;
  if (old_binary) return old_binary = 0, 209;
  loaded++;
  return strcmp(binary, "CUBIN") ? 200 : 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = strdup(name); return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) { most_dynamic = value; return attribute != 8; }
int cuGetErrorName(int status, const char **name) { *name = status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER"; return 0; }
int cuGetErrorString(int status, const char **text) { *text = status == 700 ? "an illegal memory access was encountered" : "another error"; return 0; }
int cuLaunchKernel(const char *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned dynamic, void *stream,
                   void **p, void **extra) {
  HERE;
  if (broken) return broken;
  const char *kind = kinds(f);
  if (tx % 32 || ty != 1 || tz != 1 || dynamic > most_dynamic || stream != &queue || extra || !kind || launches++ == refuses_at) return 1;
  for (int k = 0; kind[k]; k++)
    if (kind[k] == '*' && !sees(*(address *)p[k])) return 1;
  if (queued == 1 << 16) flush();
  blocks += x * y * z;
  queue[queued].name = f;
  for (int k = 0; kind[k]; k++) queue[queued].words[k] = *(address *)p[k];
  queued++;
  return 0;
}
int cuStreamSynchronize(void *stream) { HERE; waits++; return stream == &queue ? flush() : 400; }
"""

C_TYPES = {"uint8": "bool", "uint16": "uint16_t", "uint32": "uint32_t", "int64": "int64_t", "float32": "float", "float64": "double"}


class Card:
    """The library, and its counters."""

    def __init__(self, kernels: Mapping[str, Kernel], module: Module, folder: Path) -> None:
        unit = emit(kernels, module=module)
        text = emit_c({name: emulated(kernel) for name, kernel in kernels.items()}, module)
        cases = "".join(self.case(unit, name) for name in kernels)
        kinds = "".join(f'  if (!strcmp(f, "{f.name}")) return "{"".join(t[-1] for t in f.parameters)}";\n' for f in unit.functions)
        driver = DRIVER.replace("RUN", cases).replace("KINDS", f"static const char *kinds(const char *f) {{\n{kinds}  return 0;\n}}")
        source, self.path = folder / "driver.c", folder / "libdriver.so"
        source.write_text(text + driver)
        subprocess.run(["gcc", *FLAGS, "-O1", "-w", "-shared", "-fPIC", source, "-o", self.path, "-lm"], check=True)
        self.library = ctypes.CDLL(str(self.path))

    def case(self, unit: Unit, name: str) -> str:
        """The first grid of a kernel does it all, the others nothing."""
        first, *others = [f for f in unit.functions if f.kernel.name == name]
        args = [
            f"*({C_TYPES.get(t.rstrip('*'), f'{t}_t'.replace('*_t', '_t'))} {'*' if t.endswith('*') else ''}*)&w[{k}]"
            for k, t in enumerate(first.parameters)
        ]
        text = f'if (!strcmp(f, "{first.name}")) {{ {name}({", ".join(args)}); return 0; }}\n'
        return text + "".join(f'if (!strcmp(f, "{f.name}")) return 0;\n' for f in others)

    def __getattr__(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, name).value

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.library, name).value = value
