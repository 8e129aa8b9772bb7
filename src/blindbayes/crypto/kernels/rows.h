/* Kernels of class_sums: rows of codes to words, trees of one missing leaf, and their leaves added up. Part of lanes.c, behind scores.h. Which class
   a row has is a secret: it is met as a mask, never as a branch or a place. So is a row's code. */

/* -- rows of codes to words ------------------------------------------------------------------------------------------------------ */

#define ENCODED 64 /* rows at once */
#define GROUP_WORDS 32

/* Adds to words of n rows, from columns of codes: op (column, kind, word, shift, value), sorted by word. Kind 0 counts the rows
   whose code is the value; 1, 2 and 3 add the code, its square, and one, unless it is `missing`. With value 1 kind 1 counts
   missing codes in `lost`. Row r of `out` begins r * stride words on. */
KERNEL(encode)(const int64_t *const *columns, const int64_t *ops, size_t count, int64_t missing, size_t n, size_t words,
               size_t stride, uint64_t *out, uint64_t *lost)
{
    uint64_t tile[GROUP_WORDS][ENCODED], gone = 0;
    for (size_t low = 0; low < n; low += ENCODED) {
        size_t here = n - low < ENCODED ? n - low : ENCODED, op = 0;
        for (size_t group = 0; group < words; group += GROUP_WORDS) {
            size_t wide = words - group < GROUP_WORDS ? words - group : GROUP_WORDS;
            memset(tile, 0, wide * sizeof tile[0]);
            for (; op < count && (size_t)ops[5 * op + 2] < group + wide; op++) {
                const int64_t *code = columns[ops[5 * op]] + low, value = ops[5 * op + 4];
                uint64_t *to = tile[(size_t)ops[5 * op + 2] - group];
                int shift = (int)ops[5 * op + 3];
                switch (ops[5 * op + 1]) {
                case 0:
                    for (size_t r = 0; r < here; r++) to[r] += (uint64_t)(code[r] == value) << shift;
                    break;
                case 1:
                    for (size_t r = 0; r < here; r++) {
                        uint64_t there = 0 - (uint64_t)(code[r] != missing);
                        to[r] += ((uint64_t)code[r] & there) << shift;
                        gone += ~there & (uint64_t)value & 1;
                    }
                    break;
                case 2:
                    for (size_t r = 0; r < here; r++) {
                        uint64_t there = 0 - (uint64_t)(code[r] != missing), x = (uint64_t)code[r] & there;
                        to[r] += x * x << shift;
                    }
                    break;
                default:
                    for (size_t r = 0; r < here; r++) to[r] += (uint64_t)(code[r] != missing) << shift;
                }
            }
            for (size_t r = 0; r < here; r++)
                for (size_t w = 0; w < wide; w++) out[(low + r) * stride + group + w] = tile[w][r];
        }
    }
    *lost = gone;
    wipe(tile, sizeof tile);
}

/* -- trees ------------------------------------------------------------------------------------------------------------------------ */

#define GROWN 64 /* rows at once; a multiple of STEP */
#define MOST_CLASSES 32

typedef uint8_t nodes[16 * GROWN];

INLINE size_t width_at(size_t classes, size_t levels, size_t level) { return ((classes - 1) >> (levels - level)) + 1; }

/* H of n blocks, block r under the tweak first + r * step. */
INLINE void hash_tile(const keys *k, const uint8_t *in, uint64_t first, uint64_t step, uint64_t domain, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i += STEP) {
        vec x[U], t[U];
        tweaks(t, first + i * step, step, domain);
        EACH(j) x[j] = load(in + 16 * (i + V * j));
        hash(x, t, k);
        EACH(j) store(out + 16 * (i + V * j), x[j]);
    }
}

/* The same with a tweak for each block. */
INLINE void hash_at(const keys *k, const uint8_t *in, const uint64_t *at, uint64_t domain, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i += STEP) {
        vec x[U], t[U];
        EACH(j) { x[j] = load(in + 16 * (i + V * j)); t[j] = indexed(at + i + V * j, domain); }
        hash(x, t, k);
        EACH(j) store(out + 16 * (i + V * j), x[j]);
    }
}

/* Both children of n nodes: the tweaks of node r are first + 2 * r and the next. */
INLINE void split_tile(const keys *k, const uint8_t *in, uint64_t first, uint64_t domain, size_t n, uint8_t *left, uint8_t *right)
{
    for (size_t i = 0; i < n; i += STEP) {
        vec p[U], x[U], t[U];
        tweaks(t, first + 2 * i, 2, domain);
        EACH(j) p[j] = load(in + 16 * (i + V * j));
        encrypt(p, k);
        EACH(j) x[j] = p[j] ^ t[j];
        encrypt(x, k);
        EACH(j) { store(left + 16 * (i + V * j), x[j] ^ p[j]); x[j] = p[j] ^ (t[j] + pairs(1, 0)); }
        encrypt(x, k);
        EACH(j) store(right + 16 * (i + V * j), x[j] ^ p[j]);
    }
}

INLINE void transfers_of(const uint8_t *from, size_t levels, size_t level, size_t n, uint8_t *out)
{
    for (size_t r = 0; r < n; r++) store_block(out + 16 * r, load_block(from + 16 * (r * levels + level - 1)));
}

/* Leaves (classes, n, 2) and level sums (.., n, 2) of trees, from q (n, levels, 2). */
KERNEL(grow)(const uint8_t *schedule, const uint8_t *q, const uint8_t *delta, size_t n, size_t levels, size_t classes,
             uint64_t transfer_first, uint64_t tree_first, uint64_t transfer, uint64_t tree, uint8_t *leaves, uint8_t *sums)
{
    keys k;
    nodes one[MOST_CLASSES], two[MOST_CLASSES], own = {0}, pads[2];
    block offset = load_block(delta);
    load_keys(&k, schedule);
    memset(one, 0, sizeof one);
    memset(two, 0, sizeof two);
    for (size_t low = 0; low < n; low += GROWN) {
        size_t here = n - low < GROWN ? n - low : GROWN;
        uint64_t at = tree_first;
        uint8_t *sum = sums + 16 * low;
        nodes *now = one, *next = two;
        for (size_t level = 1; level <= levels; level++) {
            uint64_t first = transfer_first + (level - 1) * 2 * n + low;
            transfers_of(q + 16 * low * levels, levels, level, here, own);
            hash_tile(&k, own, first, 1, transfer, here, pads[0]);
            for (size_t r = 0; r < here; r++) store_block(own + 16 * r, load_block(own + 16 * r) ^ offset);
            hash_tile(&k, own, first + n, 1, transfer, here, pads[1]);
            if (level == 1) { memcpy(now, pads, sizeof pads); continue; }
            size_t above = width_at(classes, levels, level - 1), splits = width_at(classes, levels, level) / 2;
            if (splits == 1) { /* the children are the pads */
                hash_tile(&k, now[0], at + low, 1, tree, here, own);
                for (size_t r = 0; r < here; r++)
                    store_block(sum + 16 * r, load_block(own + 16 * r) ^ load_block(pads[0] + 16 * r) ^ load_block(pads[1] + 16 * r));
                memcpy(next, pads, sizeof pads);
                at += n;
                sum += 16 * n;
            } else {
                for (size_t node = 0; node < splits; node++, at += 2 * n) {
                    split_tile(&k, now[node], at + 2 * low, tree, here, next[2 * node], next[2 * node + 1]);
                    for (size_t i = 0; i < 16 * here; i++) { pads[0][i] ^= next[2 * node][i]; pads[1][i] ^= next[2 * node + 1][i]; }
                }
                memcpy(sum, pads[0], 16 * here);
                memcpy(sum + 16 * n, pads[1], 16 * here);
                sum += 32 * n;
            }
            if (splits < above) memcpy(next[2 * splits], now[splits], sizeof(nodes));
            nodes *swap = now;
            now = next;
            next = swap;
        }
        for (size_t leaf = 0; leaf < classes; leaf++) memcpy(leaves + 16 * (leaf * n + low), now[leaf], 16 * here);
    }
    wipe(one, sizeof one);
    wipe(two, sizeof two);
    wipe(own, sizeof own);
    wipe(pads, sizeof pads);
}

INLINE block masked(uint64_t mask) { return (block){mask, mask}; }

/* All leaves but that of each row's class (n,), in whose place stands noise, from t (n, levels, 2) and the level sums. */
KERNEL(regrow)(const uint8_t *schedule, const uint8_t *t, const uint64_t *chosen, const uint8_t *sums, size_t n, size_t levels,
               size_t classes, uint64_t transfer_first, uint64_t tree_first, uint64_t transfer, uint64_t tree, uint8_t *leaves)
{
    keys k;
    nodes one[MOST_CLASSES], two[MOST_CLASSES], own = {0}, pad;
    uint64_t missing[GROWN] = {0}, at[GROWN] = {0};
    load_keys(&k, schedule);
    memset(one, 0, sizeof one);
    memset(two, 0, sizeof two);
    for (size_t low = 0; low < n; low += GROWN) {
        size_t here = n - low < GROWN ? n - low : GROWN;
        uint64_t tweak = tree_first;
        const uint8_t *sum = sums + 16 * low;
        nodes *now = one, *next = two;
        for (size_t level = 1; level <= levels; level++) {
            uint64_t first = transfer_first + (level - 1) * 2 * n + low, path[GROWN];
            transfers_of(t + 16 * low * levels, levels, level, here, own);
            for (size_t r = 0; r < here; r++) {
                path[r] = chosen[low + r] >> (levels - level) & 1;
                at[r] = first + r + (n & (path[r] - 1)); /* the other side */
            }
            hash_at(&k, own, at, transfer, here, pad);
            if (level == 1) {
                memcpy(now[0], pad, sizeof pad);
                memcpy(now[1], pad, sizeof pad);
                memcpy(missing, path, 8 * here);
                continue;
            }
            size_t above = width_at(classes, levels, level - 1), splits = width_at(classes, levels, level) / 2;
            if (splits == 1) {
                hash_tile(&k, now[0], tweak + low, 1, tree, here, own);
                for (size_t r = 0; r < here; r++) {
                    block right = masked(path[r] - 1), known = load_block(pad + 16 * r);
                    block change = load_block(own + 16 * r) ^ load_block(sum + 16 * r);
                    store_block(next[0] + 16 * r, known ^ (change & right));
                    store_block(next[1] + 16 * r, known ^ (change & ~right));
                }
                tweak += n;
                sum += 16 * n;
            } else {
                for (size_t node = 0; node < splits; node++, tweak += 2 * n)
                    split_tile(&k, now[node], tweak + 2 * low, tree, here, next[2 * node], next[2 * node + 1]);
                for (size_t r = 0; r < here; r++) {
                    uint64_t side = path[r] - 1, sibling = 2 * missing[r] + 1 - path[r];
                    block right = masked(side), total = load_block(pad + 16 * r) ^ (load_block(sum + 16 * r) & ~right) ^
                                                        (load_block(sum + 16 * (n + r)) & right);
                    for (size_t node = 0; node < 2 * splits; node++) {
                        uint64_t adds = ~same(sibling, node) & (node & 1 ? side : ~side);
                        total ^= load_block(next[node] + 16 * r) & masked(adds);
                    }
                    for (size_t node = 0; node < 2 * splits; node++) {
                        block child = load_block(next[node] + 16 * r);
                        store_block(next[node] + 16 * r, child ^ ((child ^ total) & masked(same(sibling, node))));
                    }
                }
                sum += 32 * n;
            }
            for (size_t r = 0; r < here; r++) {
                uint64_t split = 0 - ((missing[r] - splits) >> 63); /* ones if missing < splits */
                missing[r] = 2 * missing[r] + (path[r] & split);
            }
            if (splits < above) memcpy(next[2 * splits], now[splits], sizeof(nodes));
            nodes *swap = now;
            now = next;
            next = swap;
        }
        for (size_t leaf = 0; leaf < classes; leaf++) memcpy(leaves + 16 * (leaf * n + low), now[leaf], 16 * here);
    }
    wipe(one, sizeof one);
    wipe(two, sizeof two);
    wipe(own, sizeof own);
    wipe(pad, sizeof pad);
    wipe(missing, sizeof missing);
    wipe(at, sizeof at);
}

/* -- leaves, expanded and added up ---------------------------------------------------------------------------------------------- */

#define BUFFER 2048 /* words of pads at once; no row has more */

/* Expands leaves `low` and on of one class, block b of leaf r under the tweak first + r * blocks + b. */
INLINE void leaf_pads(const keys *k, const uint8_t *leaves, uint64_t first, uint64_t domain, size_t low, size_t n, size_t words,
                      uint8_t *inner, uint64_t *at, uint64_t *pads)
{
    memcpy(inner, leaves + 16 * low, 16 * n);
    permute_tile(k, inner, n);
    for (size_t r = 0; r < n; r++) at[r] = first + (low + r) * ((words + 1) / 2);
    expand_tile(k, inner, at, domain, n, words, pads);
}

/* Takes the expanded leaves (classes, n, 2) off rows (n, words), and adds those of each class to its line of share (classes, words). */
KERNEL(mask_rows)(const uint8_t *schedule, const uint8_t *leaves, uint64_t first, uint64_t domain, size_t n, size_t words,
                  size_t classes, uint64_t *rows, uint64_t *share)
{
    keys k;
    uint8_t inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0}, pads[BUFFER], blocks = (words + 1) / 2;
    size_t each = rows_at_once(BUFFER / words);
    load_keys(&k, schedule);
    for (size_t low = 0; low < n; low += each) {
        size_t here = n - low < each ? n - low : each;
        uint64_t *to = rows + low * words;
        for (size_t label = 0; label < classes; label++) {
            uint64_t *sum = share + label * words;
            leaf_pads(&k, leaves + 16 * label * n, first + label * n * blocks, domain, low, here, words, inner, at, pads);
            for (size_t r = 0; r < here; r++)
                for (size_t w = 0; w < words; w++) { to[r * words + w] -= pads[r * words + w]; sum[w] += pads[r * words + w]; }
        }
    }
    wipe(inner, sizeof inner);
    wipe(pads, sizeof pads);
}

/* Takes the expanded leaves off share, class by class; adds each row, with all its leaves, to the line of its class. */
KERNEL(unmask_rows)(const uint8_t *schedule, const uint8_t *leaves, const uint64_t *own, uint64_t first, uint64_t domain, size_t n,
                    size_t words, size_t classes, const uint64_t *rows, uint64_t *share)
{
    keys k;
    uint8_t inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0}, pads[BUFFER], total[BUFFER], blocks = (words + 1) / 2;
    size_t each = rows_at_once(BUFFER / words);
    load_keys(&k, schedule);
    for (size_t low = 0; low < n; low += each) {
        size_t here = n - low < each ? n - low : each;
        memcpy(total, rows + low * words, 8 * here * words);
        for (size_t label = 0; label < classes; label++) {
            uint64_t *sum = share + label * words;
            leaf_pads(&k, leaves + 16 * label * n, first + label * n * blocks, domain, low, here, words, inner, at, pads);
            for (size_t r = 0; r < here; r++)
                for (size_t w = 0; w < words; w++) { total[r * words + w] += pads[r * words + w]; sum[w] -= pads[r * words + w]; }
        }
        for (size_t label = 0; label < classes; label++)
            for (size_t r = 0; r < here; r++) {
                uint64_t mask = same(own[low + r], label);
                for (size_t w = 0; w < words; w++) share[label * words + w] += total[r * words + w] & mask;
            }
    }
    wipe(inner, sizeof inner);
    wipe(pads, sizeof pads);
    wipe(total, sizeof total);
}

/* -- small numbers by one-of-n transfers ------------------------------------------------------------------------------------------ */

#define MOST_ENTRIES 64

/* Shares (n,) of table[own, choice], table (numbers, entries) of a few bits, and what is sent: the pad and the entry of every choice,
   under those of choice 0, (entries - 1, n) at `stride`. From q (n, bits, 2); a pad is the low bits of a hash. */
KERNEL(offer_digits)(const uint8_t *schedule, const uint8_t *q, const uint8_t *delta, const uint8_t *own, const uint8_t *table,
                     size_t n, size_t bits, size_t numbers, size_t entries, size_t width, uint64_t first, uint64_t domain,
                     uint8_t *share, uint8_t *sent, size_t stride)
{
    keys k;
    uint8_t transfers[16 * TILE] = {0}, made[TILE], zero[TILE] = {0}, mine[TILE] = {0}, mask = (uint8_t)((1u << width) - 1);
    block offsets[MOST_ENTRIES];
    load_keys(&k, schedule);
    for (size_t value = 0; value < entries; value++) offsets[value] = offset_of(value, delta, bits);
    for (size_t low = 0; low < n; low += TILE) {
        size_t here = n - low < TILE ? n - low : TILE;
        combine(q + 16 * low * bits, here, bits, transfers);
        memcpy(mine, own + low, here);
        for (size_t value = 0; value < entries; value++) {
            vec offset = spread(offsets[value]);
            for (size_t i = 0; i < here; i += STEP) {
                vec x[U], t[U];
                uint64_t pads[2 * STEP];
                tweaks(t, first + value * n + low + i, 1, domain);
                EACH(j) x[j] = load(transfers + 16 * (i + V * j)) ^ offset;
                hash(x, t, &k);
                memcpy(pads, x, sizeof pads);
                for (int j = 0; j < STEP; j++) made[i + (size_t)j] = (uint8_t)pads[2 * j];
            }
            for (size_t number = 0; number < numbers; number++) { /* the same steps whatever the numbers are */
                uint8_t entry = table[number * entries + value], which = (uint8_t)number;
                for (size_t r = 0; r < TILE; r++) made[r] ^= mine[r] == which ? entry : 0;
            }
            if (value == 0) {
                for (size_t r = 0; r < TILE; r++) zero[r] = made[r] & mask;
                memcpy(share + low, zero, here);
                continue;
            }
            for (size_t r = 0; r < TILE; r++) made[r] = (made[r] & mask) ^ zero[r];
            memcpy(sent + (value - 1) * stride + low, made, here);
        }
    }
    wipe(transfers, sizeof transfers);
    wipe(offsets, sizeof offsets);
    wipe(made, sizeof made);
    wipe(zero, sizeof zero);
    wipe(mine, sizeof mine);
}
