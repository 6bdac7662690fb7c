"""A driver of NVIDIA's GPUs that has none: a library of C, made by gcc, that runs the emulated kernels.

What is started on its stream is only written down, and done when somebody waits: so a host that reads too early reads what was there
before, and a result is wrong. A kernel may be told to fail: then everything fails from that moment on, as on a GPU. A thread without the
context, a kernel or a copy with an address of other than the driver's memory, and memory that is freed before what uses it is done, are
refused. Memory of the GPU alone lies in pages that the host may not touch but while the driver works. A graph is a chain of launches with
copies of their arguments; once it is made executable, changes are its own, and what was started before has what was there then.
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
#include <sys/mman.h>
typedef unsigned long long address;
/* told from outside */
int devices = 1, major = 9, concurrent = 1, version = 13000, no_memory, no_graphs, stale_graphs, room = 1 << 30, fails_at = -1, refuses_at = -1, graph_refuses_at = -1, faulty_text, old_binary, loading_waits;
/* counted */
int early, broken, launches, done, waits, copies, managed, freed, homes, prefetched, loaded, assembled, blocks, most_dynamic;
int fetched, put, pinned, own, graphs, graph_launches, graph_launched, changes;
struct work { const char *name; address to, from; size_t size; address words[128]; };
static struct work queue[1 << 16];
typedef struct { const char *function; unsigned x, y, z, tx, ty, tz, dynamic; void **p, **extra; } params;
typedef struct node { struct work work; unsigned blocks; int number; struct graph *graph; } node;
typedef struct graph { node *nodes[1 << 12]; int count, executable; } graph;
static int queued;
static struct { address at; size_t size; } owned[1 << 12], own_pages[64];
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
static void open_pages(int how) {
  for (int k = 0; k < own; k++) mprotect((void *)own_pages[k].at, own_pages[k].size, how);
}
static int flush(void) {
  open_pages(PROT_READ | PROT_WRITE);
  for (int k = 0; k < queued && !broken; k++)
    if (!queue[k].name) memcpy((void *)queue[k].to, (void *)queue[k].from, queue[k].size);
    else if (done++ == fails_at) broken = 700;
    else if (run(queue[k].name, queue[k].words)) abort();
  queued = 0;
  open_pages(PROT_NONE);
  return broken;
}
/* a launch as work; 0 if it cannot be */
static int written(struct work *w, const char *f, unsigned tx, unsigned ty, unsigned tz, unsigned dynamic, void **p, void **extra) {
  const char *kind = kinds(f);
  if (tx % 32 || ty != 1 || tz != 1 || dynamic > most_dynamic || extra || !kind) return 0;
  for (int k = 0; kind[k]; k++)
    if (kind[k] == '*' && !sees(*(address *)p[k])) return 0;
  w->name = f;
  for (int k = 0; kind[k]; k++) w->words[k] = *(address *)p[k];
  return 1;
}
static struct work *next(void) {
  if (queued == 1 << 16) flush();
  return &queue[queued++];
}
static int copy(address to, address from, size_t size, void *stream, int known) {
  if (broken || stream != &queue) return broken ? broken : 400;
  if (!known || !size) return 1;
  struct work *w = next();
  w->name = 0, w->to = to, w->from = from, w->size = size;
  return 0;
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
int cuMemPrefetchAsync(address at, size_t size, int device, void *stream) {
  HERE;
  prefetched++;
  return at % 4096 || device != 7 || stream != &queue || !concurrent || !sees(at) || !sees(at + size);
}
int cuMemAlloc_v2(address *at, size_t size) {
  HERE;
  if (broken || no_memory) return broken ? broken : 2;
  if (!size || owners == 1 << 12 || own == 64) return 1;
  owned[owners].at = own_pages[own].at = *at = (address)mmap(0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  owned[owners++].size = own_pages[own++].size = size;
  return 0;
}
int cuMemHostAlloc(address *at, size_t size, unsigned flags) {
  HERE;
  if (broken || no_memory) return broken ? broken : 2;
  if (!size || owners == 1 << 12) return 1;
  pinned++;
  owned[owners].at = *at = (address)malloc(size), owned[owners++].size = size;
  return flags == 2 ? 0 : 1;
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
int cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream) {
  HERE;
  copies++;
  return copy(to, from, size, stream, sees(to) && sees(from));
}
int cuMemcpyDtoHAsync_v2(address to, address from, size_t size, void *stream) {
  HERE;
  fetched++;
  return copy(to, from, size, stream, sees(from) && sees(from + size));
}
int cuMemcpyHtoDAsync_v2(address to, address from, size_t size, void *stream) {
  HERE;
  put++;
  return copy(to, from, size, stream, sees(to) && sees(to + size));
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
  struct work w;
  if (stream != &queue || launches++ == refuses_at || !written(&w, f, tx, ty, tz, dynamic, p, extra)) return 1;
  blocks += x * y * z;
  *next() = w;
  return 0;
}
int cuGraphCreate(graph **made, unsigned flags) { HERE; *made = calloc(1, sizeof(graph)); return broken ? broken : flags; }
int cuGraphAddKernelNode(node **made, graph *g, node **before, size_t count, const params *p) {
  HERE;
  if (g->executable || count != (g->count > 0) || (count && *before != g->nodes[g->count - 1])) return 1;
  *made = calloc(1, sizeof(node));
  (*made)->graph = g, (*made)->number = g->count, (*made)->blocks = p->x * p->y * p->z;
  g->nodes[g->count++] = *made;
  return !written(&(*made)->work, p->function, p->tx, p->ty, p->tz, p->dynamic, p->p, p->extra);
}
int cuGraphInstantiateWithFlags(graph **made, graph *g, unsigned long long flags) {
  HERE;
  *made = calloc(1, sizeof(graph));
  (*made)->count = g->count, (*made)->executable = 1;
  for (int k = 0; k < g->count; k++) *((*made)->nodes[k] = malloc(sizeof(node))) = *g->nodes[k];
  if (no_graphs) return 2;
  graphs++;
  return flags || g->executable || !g->count;
}
int cuGraphExecKernelNodeSetParams(graph *g, node *n, const params *p) {
  HERE;
  if (!g->executable || n->graph->executable || p->function != g->nodes[n->number]->work.name) return 1;
  changes++;
  if (stale_graphs) return 0;
  return !written(&g->nodes[n->number]->work, p->function, p->tx, p->ty, p->tz, p->dynamic, p->p, p->extra);
}
int cuGraphLaunch(graph *g, void *stream) {
  HERE;
  if (broken) return broken;
  if (!g->executable || stream != &queue || graph_launches++ == graph_refuses_at) return 1;
  for (int k = 0; k < g->count; k++) *next() = g->nodes[k]->work, blocks += g->nodes[k]->blocks;
  launches += g->count, graph_launched += g->count;
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
