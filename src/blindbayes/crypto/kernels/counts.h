/* Local counting and scoring: tallies, sums and look-ups over coded columns. A party runs these on its own rows or model, so the
   time and the addresses may depend on values, as those of numpy do. Rows with a position out of range are skipped and counted. */

#define COUNT_TILE 256
#define ROUNDER 6755399441055744.0 /* 1.5 * 2^52: adding it leaves the nearest whole number of any |x| < 2^51 in the low bits */

/* out[label * columns + code] += 1; a negative code is missing. out: two tables (2, classes, columns), for alternating rows, so that
   equal cells in a row do not wait for each other. Returns how many rows were out of range. */
EXPORT size_t count_cells(const int64_t *labels, const int64_t *codes, size_t n, size_t classes, size_t columns, int64_t *out)
{
    size_t lost = 0, apart = classes * columns;
    for (size_t i = 0; i < n; i++) {
        uint64_t label = (uint64_t)labels[i];
        int64_t code = codes[i];
        if (code < 0) continue;
        if (label >= classes || (uint64_t)code >= columns) { lost++; continue; }
        out[(i & 1) * apart + label * columns + (size_t)code]++;
    }
    return lost;
}

typedef struct { uint64_t n, unused; __int128 sum; unsigned __int128 square; } moments;

/* Adds number, sum and sum of squares of the codes of each class. out: (2, classes), for alternating rows. */
EXPORT size_t count_moments(const int64_t *labels, const int64_t *codes, size_t n, size_t classes, int64_t missing, moments *out)
{
    size_t lost = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t label = (uint64_t)labels[i];
        int64_t code = codes[i];
        if (code == missing) continue;
        if (label >= classes) { lost++; continue; }
        moments *own = out + (i & 1) * classes + label;
        own->n++;
        own->sum += code;
        own->square += (unsigned __int128)((__int128)code * code);
    }
    return lost;
}

/* Grid codes of numbers that lie `stride` bytes apart: floor(x * scale + 0.5), clipped to [low, high], less centre. A number beyond
   `limit`, and NaN, is missing. lost: how many are missing, and how many are out of bounds. |low|, |high| < 2^51. */
EXPORT void grid_codes(const char *values, int64_t stride, size_t n, double scale, double low, double high, double centre,
                       double limit, int64_t missing, int64_t *out, uint64_t *lost)
{
    uint64_t gone = 0, outside = 0;
    const double rounder = ROUNDER;
    int64_t base;
    memcpy(&base, &rounder, 8);
    for (size_t from = 0; from < n; from += COUNT_TILE) {
        size_t here = n - from < COUNT_TILE ? n - from : COUNT_TILE;
        double x[COUNT_TILE];
        for (size_t i = 0; i < here; i++) memcpy(x + i, values + (int64_t)(from + i) * stride, 8);
        for (size_t i = 0; i < here; i++) { /* no branches: half of the numbers round up, and nobody can say which */
            double at = x[i] * scale + 0.5, own = at < low ? low : at, whole, code;
            own = own > high ? high : own;
            whole = (own + ROUNDER) - ROUNDER;
            code = (whole - centre) + ROUNDER;
            int64_t bits, absent = -(int64_t)!(__builtin_fabs(x[i]) <= limit), beyond = -(int64_t)!((at >= low) & (at < high + 1.0));
            memcpy(&bits, &code, 8);
            bits -= base + (whole > own);
            gone -= (uint64_t)absent;
            outside -= (uint64_t)(beyond & ~absent);
            out[from + i] = (bits & ~absent) | (missing & absent);
        }
    }
    lost[0] = gone;
    lost[1] = outside;
}

/* Positions of whole numbers that lie `stride` bytes apart: table[x - low], or -1 outside. Returns how many are -1. */
EXPORT size_t whole_positions(const char *values, int64_t stride, size_t n, int64_t low, size_t span, const int64_t *table, int64_t *out)
{
    size_t lost = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t x;
        memcpy(&x, values + (int64_t)i * stride, 8);
        x -= (uint64_t)low;
        out[i] = x < span ? table[x] : -1;
        lost += out[i] < 0;
    }
    return lost;
}

/* scores[class][row] += table[class][code + 1]; entry 0 is for a missing code. scores: (classes, n); table: (classes, entries + 1). */
EXPORT size_t add_cells(const int64_t *codes, size_t n, const double *table, size_t entries, size_t classes, double *scores)
{
    size_t lost = 0;
    for (size_t from = 0; from < n; from += COUNT_TILE) {
        size_t here = n - from < COUNT_TILE ? n - from : COUNT_TILE, at[COUNT_TILE];
        for (size_t i = 0; i < here; i++) {
            uint64_t place = (uint64_t)codes[from + i] + 1;
            lost += place > entries;
            at[i] = place > entries ? 0 : (size_t)place;
        }
        for (size_t c = 0; c < classes; c++) {
            const double *own = table + c * (entries + 1);
            double *to = scores + c * n + from;
            for (size_t i = 0; i < here; i++) to[i] += own[at[i]];
        }
    }
    return lost;
}

/* scores[class][row] += constant - 0.5 * (x - mean)^2 / variance, for x = (code + centre) / scale; nothing for a missing code.
   terms: (3, classes) of constants, means, variances. */
EXPORT void add_densities(const int64_t *codes, size_t n, int64_t missing, int64_t centre, double scale, size_t classes,
                          const double *terms, double *scores)
{
    for (size_t from = 0; from < n; from += COUNT_TILE) {
        size_t here = n - from < COUNT_TILE ? n - from : COUNT_TILE;
        double x[COUNT_TILE];
        uint64_t present[COUNT_TILE];
        for (size_t i = 0; i < here; i++) {
            int64_t code = codes[from + i];
            present[i] = 0 - (uint64_t)(code != missing);
            x[i] = (double)((code != missing ? code : 0) + centre) / scale;
        }
        for (size_t c = 0; c < classes; c++) {
            double constant = terms[c], mean = terms[classes + c], variance = terms[2 * classes + c], *to = scores + c * n + from;
            for (size_t i = 0; i < here; i++) {
                double away = x[i] - mean, own = constant - 0.5 * (away * away) / variance;
                uint64_t bits;
                memcpy(&bits, &own, 8);
                bits &= present[i];
                memcpy(&own, &bits, 8);
                to[i] += own;
            }
        }
    }
}
