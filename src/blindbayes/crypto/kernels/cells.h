/* Cells of delimited text, column by column, as codes of their distinct values. Only what needs no judgement is read: rows with the
   right number of cells, quotes around whole cells, line ends \n and \r\n. At anything else it stops before the row, and another
   reader goes on. */

#define CELLS_SLOTS 8192 /* of a column's hash table; 2 to the power of 13 */
#define CELLS_VALUES 4096 /* distinct values of a column */
#define CELLS_STRIP 16384 /* bytes whose marks are found at a time; a multiple of 64, less than a cells_mark counts */
#define CELLS_COLUMNS 1024 /* that are read at most */
#define CELLS_MULTIPLIER 0x9E3779B97F4A7C15u

enum { CELLS_MORE, CELLS_ROWS, CELLS_FULL, CELLS_ODD }; /* why it stopped: text, room for rows, room for values, something else */

#define CELLS_INLINE static inline __attribute__((always_inline))

typedef uint16_t cells_mark; /* where a mark stands in a strip: strip and marks together fit a processor's nearest cache */

typedef struct {
    uint64_t key; /* of a short value its bytes, and its length on top; of a longer one a hash, and 0xFF on top; 0 is free */
    uint64_t code;
} cells_entry;

typedef struct { /* one column */
    cells_entry *table;
    uint32_t *ends; /* of values, or of the texts of rows, in store */
    uint8_t *store;
    size_t room; /* bytes of store */
    uint64_t *values;
    uint16_t *codes; /* by row; NULL where texts are stored as they are */
} cells_column;

CELLS_INLINE uint64_t cells_load(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

typedef uint8_t cells_lane __attribute__((vector_size(16)));

/* Bit i of the answer is set where byte i is 0xFF; the others are 0. */
CELLS_INLINE uint64_t cells_bits(cells_lane flags)
{
#if defined(__SSE2__)
    return (uint64_t)__builtin_ia32_pmovmskb128((char __attribute__((vector_size(16))))flags);
#else
    const cells_lane powers = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t halves[2], ones = 0x0101010101010101u; /* bytes have different bits, so their sum is their union */
    flags &= powers;
    memcpy(halves, &flags, 16);
    return halves[0] * ones >> 56 | (halves[1] * ones >> 56) << 8;
#endif
}

/* Where marks stand in text[:bytes], behind which 64 bytes may be read; returns how many there are, and writes up to 7 more. ends[0]
   counts the line ends \n among them, ends[1] says whether others than these and delimiters are there. */
CELLS_INLINE size_t cells_marks(const uint8_t *text, size_t bytes, const uint8_t *marks, cells_mark *found, size_t *ends)
{
    size_t count = 0;
    ends[0] = ends[1] = 0;
    for (size_t low = 0; low < bytes; low += 64) {
        uint64_t delimiters = 0, lines = 0, others = 0, kept = bytes - low < 64 ? ((uint64_t)1 << (bytes - low)) - 1 : ~(uint64_t)0;
        for (size_t i = 0; i < 64; i += 16) {
            cells_lane x;
            memcpy(&x, text + low + i, 16);
            delimiters |= cells_bits((cells_lane)(x == marks[0])) << i;
            lines |= cells_bits((cells_lane)(x == marks[1])) << i;
            others |= cells_bits((cells_lane)((x == marks[2]) | (x == marks[3]))) << i;
        }
        ends[0] += (size_t)__builtin_popcountll(lines & kept);
        ends[1] |= (others & kept) != 0;
        uint64_t all = (delimiters | lines | others) & kept;
        size_t many = (size_t)__builtin_popcountll(all);
        for (size_t i = 0; i < many; i += 8) /* eight at a time, the last of them perhaps for nothing */
            for (size_t j = i; j < i + 8; j++, all &= all - 1)
                found[count + j] = (cells_mark)(low + (size_t)__builtin_ctzll(all | (uint64_t)1 << 63));
        count += many;
    }
    return count;
}

/* How many rows, at most `most`, have `columns` marks: delimiters, and \n at the end. */
CELLS_INLINE size_t cells_regular(const uint8_t *text, const cells_mark *found, size_t marked, const size_t *ends, const uint8_t *marks,
                            size_t columns, size_t most)
{
    size_t rows = marked / columns, lines = ends[0], row = 0;
    if (!ends[1] && rows <= most) { /* the usual case: as many line ends as rows, each at its place */
        for (size_t i = rows * columns; i < marked; i++) lines -= text[found[i]] == '\n';
        unsigned odd = lines != rows;
        for (size_t i = 0; i < rows; i++) odd |= text[found[i * columns + columns - 1]] ^ '\n';
        if (!odd) return rows;
    }
    for (; row < rows && row < most; row++) {
        const cells_mark *own = found + row * columns;
        unsigned odd = text[own[columns - 1]] ^ '\n';
        for (size_t i = 0; i + 1 < columns; i++) odd |= text[own[i]] ^ marks[0];
        if (odd) break;
    }
    return row;
}

/* The code of a value; a new one is stored. CELLS_VALUES if there is no room. */
static size_t cells_code(const cells_column *own, const uint8_t *cell, size_t size, uint64_t key)
{
    size_t at = key * CELLS_MULTIPLIER >> 51, code;
    for (; own->table[at].key; at = (at + 1) & (CELLS_SLOTS - 1)) {
        code = own->table[at].code;
        if (own->table[at].key != key) continue;
        if (size < 8 || (own->ends[code + 1] - own->ends[code] == size && !memcmp(own->store + own->ends[code], cell, size)))
            return code;
    }
    code = *own->values;
    if (code == CELLS_VALUES || own->room - own->ends[code] < size) return CELLS_VALUES;
    memcpy(own->store + own->ends[code], cell, size);
    own->ends[code + 1] = own->ends[code] + (uint32_t)size;
    own->table[at].key = key;
    own->table[at].code = code;
    *own->values = code + 1;
    return code;
}

/* Puts a cell, behind which 8 bytes may be read, into a row of a column; or says why not. */
CELLS_INLINE uint64_t cells_put(const cells_column *own, const uint8_t *cell, size_t size, size_t row)
{
    uint64_t key;
    if (!own->codes) {
        if (own->room - own->ends[row] < size) return CELLS_ROWS;
        memcpy(own->store + own->ends[row], cell, size);
        own->ends[row + 1] = own->ends[row] + (uint32_t)size;
        return CELLS_MORE;
    }
    if (size < 8) {
        key = (cells_load(cell) & (((uint64_t)1 << 8 * size) - 1)) | (uint64_t)(size + 1) << 56;
        const cells_entry *likely = own->table + (key * CELLS_MULTIPLIER >> 51);
        if (likely->key == key) {
            own->codes[row] = (uint16_t)likely->code;
            return CELLS_MORE;
        }
    } else {
        key = cells_load(cell + size - 8);
        for (size_t i = 0; i + 8 <= size; i += 8) key = (key ^ key >> 29 ^ cells_load(cell + i)) * CELLS_MULTIPLIER;
        key = (key ^ key >> 32) | (uint64_t)0xFF << 56;
    }
    size_t code = cells_code(own, cell, size, key);
    own->codes[row] = (uint16_t)code;
    return code == CELLS_VALUES ? CELLS_FULL : CELLS_MORE;
}

/* Puts cells of `rows` regular rows into a coded column while they are short and known: those that begin behind marks[i * columns]
   and end at the next mark. Returns how many are put. */
CELLS_INLINE size_t cells_known(const cells_column *own, const uint8_t *text, const cells_mark *marks, size_t columns, size_t rows,
                                size_t to)
{
    const cells_entry *table = own->table;
    uint16_t *codes = own->codes + to;
    for (size_t row = 0; row < rows; row++, marks += columns) {
        size_t start = (size_t)marks[0] + 1, size = marks[1] - start;
        if (size >= 8) return row;
        uint64_t key = (cells_load(text + start) & (((uint64_t)1 << 8 * size) - 1)) | (uint64_t)(size + 1) << 56;
        const cells_entry *likely = table + (key * CELLS_MULTIPLIER >> 51);
        if (likely->key != key) return row;
        codes[row] = (uint16_t)likely->code;
    }
    return rows;
}

/* One row from `at`, cell by cell; where the next begins, or NULL with the reason and the column in state. */
static const uint8_t *cells_row(const uint8_t *at, const uint8_t *end, const uint8_t *marks, size_t columns, const int64_t *wanted,
                                const cells_column *own, size_t row, int skip, uint64_t *state)
{
    state[2] = CELLS_MORE;
    for (size_t column = 0; column < columns; column++) {
        const uint8_t *cell = at;
        size_t size;
        if (at >= end) return NULL; /* the rest of the row is to come */
        if (*at == marks[2]) {
            cell++;
            at = memchr(cell, marks[2], (size_t)(end - cell));
            if (!at || at + 1 >= end) return NULL;
            size = (size_t)(at++ - cell);
        } else {
            while (at < end && *at != marks[0] && *at != '\n' && *at != '\r') at++;
            if (at >= end) return NULL;
            size = (size_t)(at - cell);
        }
        int ended = *at == '\n';
        if (*at == '\r') {
            if (++at >= end) return NULL;
            ended = 1;
        }
        if (ended != (column + 1 == columns) || *at != (ended ? '\n' : marks[0])) {
            state[2] = CELLS_ODD;
            return NULL;
        }
        at++;
        if (wanted[column] < 0 || skip) continue;
        state[3] = (uint64_t)wanted[column];
        if ((state[2] = cells_put(own + wanted[column], cell, size, row)) != CELLS_MORE) return NULL;
    }
    return at;
}

/* Rows of `columns` cells, until there are `rows`, from text behind which 64 bytes may be read. wanted[column] is the place of its
   output, or -1. Marks: the delimiter, \n, the quote, \r. state: bytes read, rows made so far, why it stopped, at which place, and
   how many rows are still to be left out. */
CELLS_INLINE void cells_rows(const uint8_t *text, size_t length, const uint8_t *marks, size_t columns, const int64_t *wanted,
                       const cells_column *own, size_t rows, uint64_t *state)
{
    const uint8_t *at = text, *end = text + length, *strip = text, *stripped = text;
    cells_mark found[CELLS_STRIP + 8];
    size_t made = state[1], skip = state[4], next = 0, marked = 0, ends[2] = {0, 1};
    state[2] = state[3] = 0;
    while (at < end && state[2] == CELLS_MORE) {
        if (made == rows) { state[2] = CELLS_ROWS; break; }
        if (columns > 1 && (*at == '\n' || (*at == '\r' && at + 1 < end && at[1] == '\n'))) { /* an empty line is no row */
            at += *at == '\n' ? 1 : 2;
            continue;
        }
        for (; next < marked && strip + found[next] < at; next++) ends[1] = 1;
        if (marked - next < columns && stripped < end) { /* less than a row is left of the strip: a new one from here */
            size_t bytes = (size_t)(end - at) < CELLS_STRIP ? (size_t)(end - at) : CELLS_STRIP;
            strip = at;
            stripped = at + bytes;
            next = 0;
            marked = cells_marks(strip, bytes, marks, found, ends);
        }
        const cells_mark *first = found + next;
        size_t plain = skip ? 0 : cells_regular(strip, first, marked - next, ends, marks, columns, rows - made);
        uint64_t why = CELLS_MORE;
        for (size_t column = 0; column < columns && plain && why == CELLS_MORE; column++) {
            if (wanted[column] < 0) continue;
            const cells_column to = own[wanted[column]];
            const uint8_t *cell = column ? strip + first[column - 1] + 1 : at;
            for (size_t row = 0; row < plain; row++) {
                if (to.codes && (row || column)) {
                    row += cells_known(&to, strip, first + row * columns + column - 1, columns, plain - row, made + row);
                    if (row == plain) break;
                }
                size_t mark = row * columns + column;
                if (row || column) cell = strip + first[mark - 1] + 1;
                why = cells_put(&to, cell, (size_t)(strip + first[mark] - cell), made + row);
                if (why != CELLS_MORE) break;
            }
            state[3] = (uint64_t)wanted[column];
        }
        state[2] = why;
        if (why != CELLS_MORE) break;
        if (plain) {
            at = strip + first[plain * columns - 1] + 1;
            made += plain;
            next += plain * columns;
            ends[1] = 1; /* `ends` are those of the whole strip */
            continue;
        }
        const uint8_t *behind = cells_row(at, end, marks, columns, wanted, own, made, skip > 0, state);
        if (!behind) break;
        at = behind;
        if (skip) skip--; else made++;
    }
    state[0] = (uint64_t)(at - text);
    state[1] = made;
    state[4] = skip;
}

#if defined(__x86_64__)
__attribute__((target("avx2,bmi,bmi2,popcnt"))) static void cells_rows_wide(const uint8_t *text, size_t length, const uint8_t *marks,
                                                                            size_t columns, const int64_t *wanted,
                                                                            const cells_column *own, size_t rows, uint64_t *state)
{
    cells_rows(text, length, marks, columns, wanted, own, rows, state);
}
#endif

/* As cells_rows. Per place: a table of CELLS_SLOTS entries; ends, the larger of rows and CELLS_VALUES and one more; store, `room`
   bytes; the number of values so far; codes, `rows` of them, which are not written where `plain`. With `wide`, by the instructions
   that this processor has. */
EXPORT void cells_scan(const uint8_t *text, size_t length, const uint8_t *marks, size_t columns, const int64_t *wanted, size_t places,
                       const uint8_t *plain, size_t rows, void *tables, uint64_t *values, uint32_t *ends, uint8_t *store, size_t room,
                       uint16_t *codes, uint64_t *state, int wide)
{
    size_t most = (rows > CELLS_VALUES ? rows : CELLS_VALUES) + 1;
    cells_column own[CELLS_COLUMNS];
    for (size_t i = 0; i < places; i++)
        own[i] = (cells_column){(cells_entry *)tables + i * CELLS_SLOTS, ends + i * most, store + i * room, room, values + i,
                                plain[i] ? NULL : codes + i * rows};
#if defined(__x86_64__)
    if (wide && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
        cells_rows_wide(text, length, marks, columns, wanted, own, rows, state);
        return;
    }
#endif
    (void)wide;
    cells_rows(text, length, marks, columns, wanted, own, rows, state);
}
