#include "bench.h"
#include <math.h>

enum { N = 5, STEPS = 500000 };
#define SOLAR_MASS 39.47841760435743
#define DAYS 365.24

typedef struct { double x[N][3], v[N][3], mass[N]; } bodies;

static bodies solar_system(void) {
    static const double x[N][3] = {
        {0.0, 0.0, 0.0},
        {4.84143144246472090, -1.16032004402742839, -0.103622044471123109},
        {8.34336671824457987, 4.12479856412430479, -0.403523417114321381},
        {12.8943695621391310, -15.1111514016986312, -0.223307578892655734},
        {15.3796971148509165, -25.9193146099879641, 0.179258772950371181},
    };
    static const double per_day[N][3] = {
        {0.0, 0.0, 0.0},
        {0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023},
        {-0.00276742510726411410, 0.00499852801234917238, 0.0000230417297573763929},
        {0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556},
        {0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870},
    };
    static const double share[N] = {1.0, 0.000954791938424326609, 0.000285885980666130812, 0.0000436624404335156298, 0.0000515138902046611451};
    bodies s;
    for (int64_t i = 0; i < N; i++) {
        s.mass[i] = share[i] * SOLAR_MASS;
        for (int64_t c = 0; c < 3; c++) {
            s.x[i][c] = x[i][c];
            s.v[i][c] = per_day[i][c] * DAYS;
        }
    }
    for (int64_t c = 0; c < 3; c++) {
        double p = 0.0;
        for (int64_t i = 0; i < N; i++) p += s.v[i][c] * s.mass[i];
        s.v[0][c] = -p / SOLAR_MASS;
    }
    return s;
}

static double energy(const bodies *s) {
    double e = 0.0;
    for (int64_t i = 0; i < N; i++) {
        double speed = 0.0;
        for (int64_t c = 0; c < 3; c++) speed += s->v[i][c] * s->v[i][c];
        e += 0.5 * s->mass[i] * speed;
        for (int64_t j = i + 1; j < N; j++) {
            double square = 0.0;
            for (int64_t c = 0; c < 3; c++) {
                double d = s->x[i][c] - s->x[j][c];
                square += d * d;
            }
            e -= s->mass[i] * s->mass[j] / sqrt(square);
        }
    }
    return e;
}

static void advance(bodies *s, double dt) {
    for (int64_t i = 0; i < N; i++) {
        for (int64_t j = i + 1; j < N; j++) {
            double dx = s->x[i][0] - s->x[j][0];
            double dy = s->x[i][1] - s->x[j][1];
            double dz = s->x[i][2] - s->x[j][2];
            double square = dx * dx + dy * dy + dz * dz;
            double pull = dt / (square * sqrt(square));
            double a = s->mass[j] * pull;
            double b = s->mass[i] * pull;
            s->v[i][0] -= dx * a;
            s->v[i][1] -= dy * a;
            s->v[i][2] -= dz * a;
            s->v[j][0] += dx * b;
            s->v[j][1] += dy * b;
            s->v[j][2] += dz * b;
        }
    }
    for (int64_t i = 0; i < N; i++)
        for (int64_t c = 0; c < 3; c++) s->x[i][c] += dt * s->v[i][c];
}

double bench(double *seconds) {
    bodies s = solar_system();
    double start = now();
    for (int64_t step = 0; step < STEPS; step++) advance(&s, 0.01);
    double result = energy(&s);
    *seconds = now() - start;
    return result;
}
