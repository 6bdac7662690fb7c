#include "bench.h"

enum { SIZE = 512, LIMIT = 100 };

static int64_t escape(double re, double im) {
    double x = 0.0, y = 0.0;
    int64_t n = 0;
    while (n < LIMIT && x * x + y * y <= 4.0) {
        double t = x * x - y * y + re;
        y = 2.0 * x * y + im;
        x = t;
        n++;
    }
    return n;
}

double bench(double *seconds) {
    double start = now();
    int64_t total = 0;
    for (int64_t row = 0; row < SIZE; row++)
        for (int64_t column = 0; column < SIZE; column++)
            total += escape(2.0 * (double)column / (double)SIZE - 1.5, 2.0 * (double)row / (double)SIZE - 1.0);
    *seconds = now() - start;
    return (double)total;
}
