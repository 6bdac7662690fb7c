#include "bench.h"
#include <string.h>

enum { N = 9 };

static int64_t flips(int64_t n, const int64_t *pile) {
    int64_t p[N];
    memcpy(p, pile, n * sizeof(int64_t));
    int64_t count = 0;
    while (p[0] != 0) {
        int64_t low = 0, high = p[0];
        while (low < high) {
            int64_t t = p[low];
            p[low] = p[high];
            p[high] = t;
            low++;
            high--;
        }
        count++;
    }
    return count;
}

static int64_t fannkuch(int64_t n) {
    int64_t pile[N], turn[N], most = 0, checksum = 0, sign = 1;
    for (int64_t i = 0; i < n; i++) {
        pile[i] = i;
        turn[i] = 0;
    }
    while (true) {
        int64_t count = flips(n, pile);
        if (count > most) most = count;
        checksum += sign * count;
        sign = -sign;
        int64_t i = 1;
        while (i < n) {
            int64_t top = pile[0];
            for (int64_t j = 0; j < i; j++) pile[j] = pile[j + 1];
            pile[i] = top;
            turn[i]++;
            if (turn[i] <= i) break;
            turn[i] = 0;
            i++;
        }
        if (i == n) return checksum * 1000 + most;
    }
}

double bench(double *seconds) {
    double start = now();
    int64_t result = fannkuch(N);
    *seconds = now() - start;
    return (double)result;
}
