/* 100 random bits: ids are unique and cannot be guessed. They come directly from the kernel's
 * generator; an id without randomness would be a security defect, so there is no fallback. */
#include "core/base/id.h"

#include <errno.h>
#include <sys/random.h>

static const char id_alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

void id_new(const char kind[2], char ret[ID_SIZE])
{
    uint8_t random[ID_LEN - 2];
    ssize_t n;

    do
        n = getrandom(random, sizeof(random), 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(random))
        abort();
    ret[0] = kind[0];
    ret[1] = kind[1];
    for (size_t i = 0; i < sizeof(random); i++)
        ret[i + 2] = id_alphabet[random[i] & 31];
    ret[ID_LEN] = '\0';
}

bool id_valid(const char *id, const char kind[2])
{
    if (strnlen(id, ID_SIZE) != ID_LEN || id[0] != kind[0] || id[1] != kind[1])
        return false;
    for (size_t i = 2; i < ID_LEN; i++)
        if (!strchr(id_alphabet, id[i]))
            return false;
    return true;
}
