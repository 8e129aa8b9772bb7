/* Classification: look-ups in shared tables, and the comparison of scores. Part of lanes.c, which has what is used here. */

/* -- look-ups ------------------------------------------------------------------------------------------------------------------ */

#define AT_ONCE 2048 /* words of pads; no row has more */
#define TURNED 8192  /* words of tables whose entries are turned around; no table has more */

/* Ones if two numbers are equal. */
INLINE uint64_t same(uint64_t x, uint64_t y)
{
    uint64_t z = x ^ y;
    return ((z | (0 - z)) >> 63) - 1;
}

/* Sums and differences of n words, which are numbers of one limb or of two. */
INLINE void add_words(uint64_t *to, const uint64_t *x, size_t n, size_t limbs)
{
    if (limbs == 1) for (size_t i = 0; i < n; i++) to[i] += x[i];
    else for (size_t i = 0; i < n; i += 2) {
        to[i] += x[i];
        to[i + 1] += x[i + 1] + (to[i] < x[i]);
    }
}

/* x - y - z. */
INLINE void take_off(uint64_t *to, const uint64_t *x, const uint64_t *y, const uint64_t *z, size_t n, size_t limbs)
{
    if (limbs == 1) for (size_t i = 0; i < n; i++) to[i] = x[i] - y[i] - z[i];
    else for (size_t i = 0; i < n; i += 2) {
        uint64_t low = x[i] - y[i], high = x[i + 1] - y[i + 1] - (x[i] < y[i]);
        to[i] = low - z[i];
        to[i + 1] = high - z[i + 1] - (low < z[i]);
    }
}

/* Rows at once: as many as buffers hold. */
INLINE size_t rows_at_once(size_t most)
{
    return most >= TILE ? TILE : most > STEP ? most / STEP * STEP : most ? most : 1;
}

/* What the rows of one tile of look-ups have in common. */
typedef struct {
    size_t n, selectors, bits, entries, words, limbs;
    uint64_t first, domain;
} look;

/* Pads of entry `value` of `here` rows from `low` on, whose keys are `own`. */
INLINE void pads_of(const keys *k, const look *a, const uint8_t *own, block offset, size_t value, size_t low, size_t here,
                    uint64_t *out)
{
    uint8_t inner[16 * TILE];
    uint64_t at[TILE], blocks = (a->words + 1) / 2, from = a->first + (value * a->n + low) * blocks;
    vec d = spread(offset);
    for (size_t i = 0; i < here; i += STEP) {
        vec x[U];
        EACH(j) x[j] = load(own + 16 * (i + V * j)) ^ d;
        encrypt(x, k);
        EACH(j) store(inner + 16 * (i + V * j), x[j]);
        for (size_t r = i; r < i + STEP; r++) at[r] = from + r * blocks;
    }
    expand_tile(k, inner, at, a->domain, here, a->words, out);
    wipe(inner, sizeof inner);
}

/* The entries of `here` rows as their choosers see them: entry v ^ flip of the row's table at v. The same steps for all flips. */
INLINE void turn(const look *a, const uint64_t *table, size_t apart, const uint64_t *flips, size_t low, size_t here, uint64_t *out)
{
    size_t words = a->words, size = here * words;
    for (size_t r = 0; r < here; r++) {
        const uint64_t *own = table + (low + r) / a->selectors * apart + (low + r) % a->selectors * a->entries * words;
        for (size_t v = 0; v < a->entries; v++)
            for (size_t w = 0; w < words; w++) out[v * size + r * words + w] = own[v * words + w];
    }
    for (size_t bit = 0; bit < a->bits; bit++)
        for (size_t v = 0; v < a->entries; v++) {
            if (v >> bit & 1) continue;
            uint64_t *x = out + v * size, *y = out + (v | (size_t)1 << bit) * size;
            for (size_t r = 0; r < here; r++) {
                uint64_t mask = 0 - (flips[low + r] >> bit & 1);
                for (size_t w = 0; w < words; w++, x++, y++) {
                    uint64_t t = (*x ^ *y) & mask;
                    *x ^= t;
                    *y ^= t;
                }
            }
        }
}

INLINE void offer_rows(const uint8_t *schedule, const uint8_t *q, const uint8_t *delta, const uint64_t *table, size_t apart,
                       const uint64_t *flips, look a, uint64_t *total, uint64_t *sent)
{
    keys k;
    uint8_t own[16 * TILE] = {0};
    uint64_t kept[AT_ONCE], pads[AT_ONCE], entry[AT_ONCE], turned[TURNED];
    size_t words = a.words, fits = AT_ONCE / words, also = TURNED / (a.entries * words);
    size_t each = rows_at_once(flips && also < fits ? also : fits);
    load_keys(&k, schedule);
    for (size_t low = 0; low < a.n; low += each) {
        size_t here = a.n - low < each ? a.n - low : each, size = here * words;
        combine(q + 16 * low * a.bits, here, a.bits, own);
        if (flips) turn(&a, table, apart, flips, low, here, turned);
        for (size_t value = 0; value < a.entries; value++) {
            block offset = offset_of(value, delta, a.bits);
            pads_of(&k, &a, own, offset, value, low, here, value ? pads : kept);
            if (!value) {
                if (flips) add_words(kept, turned, size, a.limbs);
                size_t at = low / a.selectors * words, left = a.selectors - low % a.selectors;
                for (size_t r = 0; r < here; r++) {
                    add_words(total + at, kept + r * words, words, a.limbs);
                    if (!--left) { left = a.selectors; at += words; }
                }
                continue;
            }
            const uint64_t *from = turned + value * size;
            if (!flips) {
                const uint64_t *line = table + low / a.selectors * apart;
                size_t s = low % a.selectors;
                for (size_t r = 0; r < here; r++) {
                    for (size_t w = 0; w < words; w++) entry[r * words + w] = line[(s * a.entries + value) * words + w];
                    if (++s == a.selectors) { s = 0; line += apart; }
                }
                from = entry;
            }
            take_off(sent + ((value - 1) * a.n + low) * words, from, kept, pads, size, a.limbs);
        }
    }
    wipe(own, sizeof own);
    wipe(pads, sizeof pads);
    if (flips) wipe(turned, sizeof turned);
}

/* The sender of `count` times `selectors` look-ups, n rows in all. q (n, bits, 2) leads to pads p; the table of a row is one of the
   `selectors` of its instance, (selectors, entries, words), `apart` words from instance to instance; flips (n,): it is read from there,
   entry v ^ flip; without flips entry 0 is 0. What it keeps, entry 0 + p_0, is added to total (count, words); entry v - kept - p_v
   stands in sent (entries - 1, n, words). Numbers have one limb or two. */
KERNEL(offer)(const uint8_t *schedule, const uint8_t *q, const uint8_t *delta, const uint64_t *table, size_t apart,
              const uint64_t *flips, size_t count, size_t selectors, size_t bits, size_t entries, size_t words, size_t limbs,
              uint64_t first, uint64_t domain, uint64_t *total, uint64_t *sent)
{
    look a = {count * selectors, selectors, bits, entries, words, limbs, first, domain};
    if (words == 1 && limbs == 1) { a.words = a.limbs = 1; offer_rows(schedule, q, delta, table, apart, flips, a, total, sent); }
    else if (words == 2 && limbs == 1) { a.words = 2; a.limbs = 1; offer_rows(schedule, q, delta, table, apart, flips, a, total, sent); }
    else offer_rows(schedule, q, delta, table, apart, flips, a, total, sent);
}

INLINE void take_rows(const uint8_t *schedule, const uint8_t *t, const uint64_t *choices, const uint64_t *sent, look a,
                      uint64_t *total)
{
    keys k;
    uint8_t inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0}, pads[AT_ONCE], blocks = (a.words + 1) / 2;
    size_t words = a.words, each = rows_at_once(AT_ONCE / words);
    load_keys(&k, schedule);
    for (size_t low = 0; low < a.n; low += each) {
        size_t here = a.n - low < each ? a.n - low : each;
        combine(t + 16 * low * a.bits, here, a.bits, inner);
        for (size_t r = 0; r < here; r++) at[r] = a.first + (choices[low + r] * a.n + low + r) * blocks;
        permute_tile(&k, inner, here);
        expand_tile(&k, inner, at, a.domain, here, words, pads);
        for (size_t r = 0; r < here; r++) { /* of entry 0 the pad is taken off */
            uint64_t none = same(choices[low + r], 0), *pad = pads + r * words;
            if (a.limbs == 1) for (size_t w = 0; w < words; w++) pad[w] = (pad[w] ^ none) - none;
            else for (size_t w = 0; w < words; w += 2) {
                pad[w] = (pad[w] ^ none) - none;
                pad[w + 1] = (pad[w + 1] ^ none) + (none & same(pad[w], 0) & 1);
            }
        }
        for (size_t value = 1; value < a.entries; value++) {
            const uint64_t *line = sent + ((value - 1) * a.n + low) * words;
            for (size_t r = 0; r < here; r++, line += words) {
                uint64_t mask = same(choices[low + r], value), *pad = pads + r * words;
                if (a.limbs == 1) for (size_t w = 0; w < words; w++) pad[w] += line[w] & mask;
                else for (size_t w = 0; w < words; w += 2) {
                    uint64_t x = line[w] & mask;
                    pad[w] += x;
                    pad[w + 1] += (line[w + 1] & mask) + (pad[w] < x);
                }
            }
        }
        size_t to = low / a.selectors * words, left = a.selectors - low % a.selectors;
        for (size_t r = 0; r < here; r++) {
            add_words(total + to, pads + r * words, words, a.limbs);
            if (!--left) { left = a.selectors; to += words; }
        }
    }
    wipe(inner, sizeof inner);
    wipe(at, sizeof at);
    wipe(pads, sizeof pads);
}

/* The chooser: what it is left with is added to total (count, words), from t (n, bits, 2), choices (n,) and what was sent. */
KERNEL(take)(const uint8_t *schedule, const uint8_t *t, const uint64_t *choices, const uint64_t *sent, size_t count,
             size_t selectors, size_t bits, size_t entries, size_t words, size_t limbs, uint64_t first, uint64_t domain,
             uint64_t *total)
{
    look a = {count * selectors, selectors, bits, entries, words, limbs, first, domain};
    if (words == 1 && limbs == 1) { a.words = a.limbs = 1; take_rows(schedule, t, choices, sent, a, total); }
    else if (words == 2 && limbs == 1) { a.words = 2; a.limbs = 1; take_rows(schedule, t, choices, sent, a, total); }
    else take_rows(schedule, t, choices, sent, a, total);
}

/* -- comparison ------------------------------------------------------------------------------------------------------------------ */

#define CLASSES 16 /* more are not compared by pairs */

/* The AND of `left` labels per lane, into level[0], by halves; `row` counts the rows of gates before these, and those after are returned. */
INLINE size_t and_all(const keys *k, const uint8_t *delta, vec d, vec (*level)[U], size_t left, size_t here, size_t lanes, size_t low,
                      size_t row, uint64_t first, uint64_t domain, uint8_t *tables)
{
    vec o[U];
    while (left > 1) {
        size_t half = left / 2;
        for (size_t h = 0; h < half; h++) {
            uint64_t tl = first + 2 * row * lanes + h * lanes + low;
            and_lanes(k, delta, d, level[h], level[half + h], here, tl, tl + half * lanes, domain,
                      tables + 32 * ((row + h) * lanes + low), o);
            EACH(j) level[h][j] = o[j];
        }
        row += half;
        if (left % 2) EACH(j) level[half][j] = level[left - 1][j];
        left -= half;
    }
    return row;
}

/* The bits of the position of the first maximum of `classes` scores, out (ceil(log2 classes), count, 2), from both parties' shares of the
   differences of all pairs: values (lanes, limbs) of who garbles, labels (bits, lanes, 2) of the other's bits; lanes = pairs * count.
   The circuit and its order are those of `circuits.sign_of_sum` and `circuits.argmax_by_pairs`. behind (lanes, 2) is scratch. */
KERNEL(compare)(const uint8_t *schedule, const uint8_t *delta, const uint64_t *values, const uint8_t *labels, size_t count,
                size_t classes, size_t bits, size_t limbs, uint64_t first, uint64_t domain, uint8_t *tables, uint8_t *behind,
                uint8_t *out)
{
    size_t lanes = classes * (classes - 1) / 2 * count, top = bits - 1, named = 0;
    keys k;
    vec d = delta ? spread(load_block(delta)) : pairs(0, 0), x[U], y[U], o[U];
    load_keys(&k, schedule);
    while ((size_t)1 << named < classes) named++;
    memset(behind, 0, 16 * lanes);
    chain(&k, delta, NULL, values, limbs, labels, NULL, top, lanes, first, domain, tables, behind, 0);
    for (size_t low = 0; low < lanes; low += STEP) {
        size_t here = lanes - low < STEP ? lanes - low : STEP;
        uint8_t stage[16 * STEP];
        load_step(x, labels + 16 * (top * lanes + low), here);
        load_step(y, behind + 16 * low, here);
        if (delta) own_step(o, d, values + low * limbs, limbs, top, here);
        else EACH(j) o[j] = pairs(0, 0);
        EACH(j) store(stage + 16 * V * j, x[j] ^ y[j] ^ o[j]);
        memcpy(behind + 16 * low, stage, 16 * here);
    }
    tables += 32 * top * lanes;
    first += 2 * top * lanes;
    for (size_t low = 0; low < count; low += STEP) { /* one step of instances through all winners */
        size_t here = count - low < STEP ? count - low : STEP, row = 0;
        vec winner[CLASSES][U], beats[CLASSES][U];
        EACH(j) winner[classes - 1][j] = d; /* exactly one class wins */
        for (size_t own = 0; own + 1 < classes; own++) {
            size_t left = 0;
            for (size_t other = 0; other < classes; other++) {
                if (other == own) continue;
                size_t i = own < other ? own : other, j = own < other ? other : own;
                size_t pair = i * (2 * classes - i - 1) / 2 + j - i - 1;
                load_step(beats[left], behind + 16 * (pair * count + low), here);
                if (own < other) EACH(v) beats[left][v] ^= d;
                left++;
            }
            row = and_all(&k, delta, d, beats, left, here, count, low, row, first, domain, tables);
            EACH(v) { winner[own][v] = beats[0][v]; winner[classes - 1][v] ^= beats[0][v]; }
        }
        for (size_t bit = 0; bit < named; bit++) {
            uint8_t stage[16 * STEP];
            EACH(v) o[v] = pairs(0, 0);
            for (size_t own = 0; own < classes; own++)
                if (own >> bit & 1) EACH(v) o[v] ^= winner[own][v];
            EACH(v) store(stage + 16 * V * v, o[v]);
            memcpy(out + 16 * (bit * count + low), stage, 16 * here);
        }
    }
    wipe(x, sizeof x);
    wipe(y, sizeof y);
}

/* -- matches over a hidden join ---------------------------------------------------------------------------------------------------- */

#define TAGS 128 /* bits of a tag, at most */

/* Per lane whether the first `tag_bits` bits of two numbers are equal, equal (lanes, 2); and, where they are, the XOR of the `planes` bits
   behind them: keys (lanes, planes, 2), the labels, for who garbles those of colour 0; colours (lanes, planes) of the labels. values (lanes,
   limbs) of who garbles, labels (tag_bits + planes, lanes, 2) of the other's. As `circuits.is_zero` and one AND per plane. */
KERNEL(match)(const uint8_t *schedule, const uint8_t *delta, const uint64_t *values, const uint8_t *labels, size_t lanes,
              size_t tag_bits, size_t planes, size_t limbs, uint64_t first, uint64_t domain, uint8_t *tables, uint8_t *equal,
              uint8_t *keys_out, uint8_t *colours)
{
    keys k;
    vec d = delta ? spread(load_block(delta)) : pairs(0, 0), level[TAGS][U], x[U], o[U];
    uint8_t stage[16 * STEP];
    load_keys(&k, schedule);
    for (size_t low = 0; low < lanes; low += STEP) {
        size_t here = lanes - low < STEP ? lanes - low : STEP;
        for (size_t bit = 0; bit < tag_bits; bit++) {
            load_step(level[bit], labels + 16 * (bit * lanes + low), here);
            if (delta) own_step(o, d, values + low * limbs, limbs, bit, here);
            if (delta) EACH(j) level[bit][j] ^= o[j] ^ d;
        }
        size_t row = and_all(&k, delta, d, level, tag_bits, here, lanes, low, 0, first, domain, tables);
        EACH(j) store(stage + 16 * V * j, level[0][j]);
        memcpy(equal + 16 * low, stage, 16 * here);
        for (size_t plane = 0; plane < planes; plane++) {
            load_step(x, labels + 16 * ((tag_bits + plane) * lanes + low), here);
            if (delta) own_step(o, d, values + low * limbs, limbs, tag_bits + plane, here);
            if (delta) EACH(j) x[j] ^= o[j];
            uint64_t tl = first + 2 * row * lanes + plane * lanes + low;
            and_lanes(&k, delta, d, level[0], x, here, tl, tl + planes * lanes, domain,
                      tables + 32 * ((row + plane) * lanes + low), o);
            EACH(j) store(stage + 16 * V * j, o[j] ^ (colour(o[j]) & d));
            memcpy(x, o, sizeof x);
            for (size_t i = 0; i < here; i++) {
                store_block(keys_out + 16 * ((low + i) * planes + plane), load_block(stage + 16 * i));
                colours[(low + i) * planes + plane] = ((uint8_t *)x)[16 * i] & 1;
            }
        }
    }
    wipe(level, sizeof level);
    wipe(x, sizeof x);
    wipe(o, sizeof o);
    wipe(stage, sizeof stage);
}
