#include "bench.h"

enum { N = 300 };

static void product(int64_t n, int64_t m, int64_t p, const double *a, const double *b, double *c) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < p; j++) {
            double s = 0.0;
            for (int64_t k = 0; k < m; k++) s += a[i * m + k] * b[k * p + j];
            c[i * p + j] = s;
        }
}

double bench(double *seconds) {
    double *a = malloc(N * N * sizeof(double)), *b = malloc(N * N * sizeof(double));
    for (int64_t i = 0; i < N * N; i++) {
        a[i] = (double)(i % 7) * 0.5;
        b[i] = (double)(i % 5) * 0.25;
    }
    double start = now();
    double *c = malloc(N * N * sizeof(double));
    product(N, N, N, a, b, c);
    double total = 0.0;
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++) total += c[i * N + j];
    *seconds = now() - start;
    free(a);
    free(b);
    free(c);
    return total;
}
