// What every program shares: `bench` prepares, does the work once, says how long that took, and gives a number to check.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

double bench(double *seconds);

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
