#include "bench.h"

enum { N = 8000000 };

static void bytes(int64_t n, uint8_t *x) {
    int64_t state = 7;
    for (int64_t i = 0; i < n; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        x[i] = (uint8_t)(state / 65536 % 256);
    }
}

static void histogram(int64_t n, const uint8_t *x, int64_t *count) {
    for (int64_t b = 0; b < 256; b++) count[b] = 0;
    for (int64_t i = 0; i < n; i++) count[x[i]]++;
}

double bench(double *seconds) {
    uint8_t *x = malloc(N);
    bytes(N, x);
    double start = now();
    int64_t count[256], total = 0;
    histogram(N, x, count);
    for (int64_t b = 0; b < 256; b++) total = (total * 31 + count[b]) % 1000003;
    *seconds = now() - start;
    free(x);
    return (double)total;
}
