#include "bench.h"
#include <string.h>

enum { N = 12000 };

static void numbers(int64_t n, int64_t *x) {
    int64_t state = 42;
    for (int64_t i = 0; i < n; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        x[i] = state / 1024;
    }
}

static void sort(int64_t n, int64_t *a) {
    for (int64_t i = 1; i < n; i++) {
        int64_t x = a[i], j = i;
        while (j > 0 && a[j - 1] > x) {
            a[j] = a[j - 1];
            j--;
        }
        a[j] = x;
    }
}

double bench(double *seconds) {
    int64_t *x = malloc(N * sizeof(int64_t));
    numbers(N, x);
    double start = now();
    int64_t *a = malloc(N * sizeof(int64_t));
    memcpy(a, x, N * sizeof(int64_t));
    sort(N, a);
    int64_t total = 0;
    for (int64_t i = 0; i < N; i++) total = (total * 31 + a[i]) % 1000003;
    *seconds = now() - start;
    free(a);
    free(x);
    return (double)total;
}
