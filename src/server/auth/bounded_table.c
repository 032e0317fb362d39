/* Multiply and fold, keyed by two random words. A cryptographic hash is not necessary: a collision
 * would only cause one eviction, and the content of the table is not visible from outside. */
#include "server/auth/bounded_table.h"

#include <errno.h>
#include <sys/random.h>

void bounded_table_init(struct bounded_table *w, uint32_t rows)
{
    ssize_t n;

    do
        n = getrandom(w->secret, sizeof(w->secret), 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(w->secret))
        abort();
    w->rows = rows;
}

static uint64_t bounded_table_hash_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;

    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

size_t bounded_table_row(const struct bounded_table *w, const void *name, size_t len)
{
    const uint8_t *p = name;
    uint64_t h = w->secret[0] ^ len;

    for (size_t i = 0; i < len; i += 8) {
        uint64_t word = 0;

        memcpy(&word, p + i, len - i < 8 ? len - i : 8);
        h = bounded_table_hash_mix(h ^ word, w->secret[1] | 1);
    }
    return (size_t)(h & (w->rows - 1)) * BOUNDED_TABLE_WAYS;
}
