#include "bench.h"
#include <math.h>

enum { N = 700 };

static double a(int64_t i, int64_t j) { return 1.0 / (double)((i + j) * (i + j + 1) / 2 + i + 1); }

static void times(int64_t n, const double *v, double *out) {
    for (int64_t i = 0; i < n; i++) {
        double s = 0.0;
        for (int64_t j = 0; j < n; j++) s += a(i, j) * v[j];
        out[i] = s;
    }
}

static void transposed_times(int64_t n, const double *v, double *out) {
    for (int64_t i = 0; i < n; i++) {
        double s = 0.0;
        for (int64_t j = 0; j < n; j++) s += a(j, i) * v[j];
        out[i] = s;
    }
}

double bench(double *seconds) {
    double start = now();
    double *u = malloc(N * sizeof(double)), *v = malloc(N * sizeof(double)), *t = malloc(N * sizeof(double));
    for (int64_t i = 0; i < N; i++) u[i] = 1.0;
    for (int64_t step = 0; step < 10; step++) {
        times(N, u, t);
        transposed_times(N, t, v);
        times(N, v, t);
        transposed_times(N, t, u);
    }
    double uv = 0.0, vv = 0.0;
    for (int64_t i = 0; i < N; i++) {
        uv += u[i] * v[i];
        vv += v[i] * v[i];
    }
    double result = sqrt(uv / vv);
    free(u);
    free(v);
    free(t);
    *seconds = now() - start;
    return result;
}
