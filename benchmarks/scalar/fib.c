#include "bench.h"

enum { N = 35 };

static int64_t fib(int64_t n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

double bench(double *seconds) {
    double start = now();
    int64_t result = fib(N);
    *seconds = now() - start;
    return (double)result;
}
