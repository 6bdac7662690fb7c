#include "bench.h"

enum { LIMIT = 300000 };

static int64_t steps(int64_t start) {
    int64_t n = start, count = 1;
    while (n != 1) {
        n = n % 2 == 0 ? n / 2 : 3 * n + 1;
        count++;
    }
    return count;
}

double bench(double *seconds) {
    double start = now();
    int64_t best = 0, most = 0;
    for (int64_t i = 1; i < LIMIT; i++) {
        int64_t count = steps(i);
        if (count > most) {
            most = count;
            best = i;
        }
    }
    *seconds = now() - start;
    return (double)(best * 1000 + most);
}
