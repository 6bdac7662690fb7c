#include "bench.h"

enum { N = 1000000, ROUNDS = 20 };

static void bytes(int64_t n, uint8_t *x) {
    int64_t state = 7;
    for (int64_t i = 0; i < n; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        x[i] = (uint8_t)(state / 65536 % 256);
    }
}

static uint32_t hash(int64_t n, const uint8_t *x, uint32_t start) {
    uint32_t h = start;
    for (int64_t i = 0; i < n; i++) h = (h ^ x[i]) * 16777619u;
    return h;
}

double bench(double *seconds) {
    uint8_t *x = malloc(N);
    bytes(N, x);
    double start = now();
    uint32_t h = 2166136261u;
    for (int64_t round = 0; round < ROUNDS; round++) h = hash(N, x, h);
    *seconds = now() - start;
    free(x);
    return (double)h;
}
