#include "bench.h"

enum { N = 10000000 };

static int64_t sieve(int64_t n) {
    bool *prime = malloc(n);
    for (int64_t i = 0; i < n; i++) prime[i] = i >= 2;
    int64_t p = 2;
    while (p * p < n) {
        if (prime[p])
            for (int64_t multiple = p * p; multiple < n; multiple += p) prime[multiple] = false;
        p++;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (prime[i]) count++;
    free(prime);
    return count;
}

double bench(double *seconds) {
    double start = now();
    int64_t result = sieve(N);
    *seconds = now() - start;
    return (double)result;
}
