/* The remains of a failed program: its exception, traceback, output and code. The first two bytes
 * choose the circumstances; the texts follow, separated by NUL bytes.
 *
 * Checked in addition to memory errors: a hint is one line of UTF-8 within its bound, whose words
 * have the length of a name at most, and without the characters that hints never quote. */
#include "sandbox/hint.h"

#include "core/base/str.h"
#include "core/base/text.h"

#define TEXTS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool has_program(const char *name)
{
    return name[0] == 'p';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const languages[] = { NULL, "python", "node", "bash" };
    char *text[TEXTS] = { NULL };
    size_t length[TEXTS] = { 0 };
    char hint[HINT_MAX];

    if (len < 2)
        return 0;
    const uint8_t *p = data + 2, *end = data + len;
    for (size_t i = 0; i < TEXTS && p < end; i++) {
        const uint8_t *stop = i + 1 < TEXTS ? memchr(p, 0, (size_t)(end - p)) : NULL;

        length[i] = (size_t)((stop ? stop : end) - p);
        text[i] = str_dup_n((const char *)p, length[i]);
        p += length[i] + (stop ? 1 : 0);
    }
    struct hint_facts f = { .place = (enum hint_place)(data[0] & 3),
                            .language = languages[data[0] >> 2 & 3],
                            .exit_code = data[1],
                            .context_reset = data[0] & 16,
                            .has_network = data[0] & 32,
                            .ended_by = data[0] & 64 ? (enum ended_by)(data[1] % (ENDED_BUDGET + 1)) : ENDED_EXIT,
                            .signal = data[1],
                            .exception_name = text[0],
                            .exception_value = text[1],
                            .traceback = text[2],
                            .code = text[3],
                            .output = text[4],
                            .output_len = text[4] ? length[4] : 0,
                            .has_program = has_program };
    bool found = hint_write(&f, hint);
    size_t n = strlen(hint), word = 0;

    must(found == (n > 0) && n < HINT_MAX && text_is_utf8(hint, n) && !strpbrk(hint, "|^~&<>\\"));
    for (size_t i = 0; i < n; i++) {
        must((unsigned char)hint[i] >= 0x20 && hint[i] != 0x7f);
        word = hint[i] == ' ' ? 0 : word + 1;
        must(word < HINT_TOKEN_MAX + 16);
    }
    for (size_t i = 0; i < TEXTS; i++)
        free(text[i]);
    return 0;
}
