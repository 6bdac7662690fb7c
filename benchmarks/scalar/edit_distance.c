#include "bench.h"

enum { N = 3000, M = 2500 };

static void letters(int64_t n, int64_t seed, uint8_t *x) {
    int64_t state = seed;
    for (int64_t i = 0; i < n; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        x[i] = (uint8_t)(state / 65536 % 4);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t distance(int64_t n, int64_t m, const uint8_t *a, const uint8_t *b) {
    int64_t *row = malloc((m + 1) * sizeof(int64_t));
    for (int64_t j = 0; j < m + 1; j++) row[j] = j;
    for (int64_t i = 0; i < n; i++) {
        int64_t corner = row[0];
        row[0] = i + 1;
        for (int64_t j = 0; j < m; j++) {
            int64_t replaced = a[i] == b[j] ? corner : corner + 1;
            corner = row[j + 1];
            row[j + 1] = least(replaced, least(corner, row[j]) + 1);
        }
    }
    int64_t result = row[m];
    free(row);
    return result;
}

double bench(double *seconds) {
    uint8_t *a = malloc(N), *b = malloc(M);
    letters(N, 1, a);
    letters(M, 2, b);
    double start = now();
    int64_t result = distance(N, M, a, b);
    *seconds = now() - start;
    free(a);
    free(b);
    return (double)result;
}
