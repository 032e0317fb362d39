/* The description of a script is the comment that its author wrote for a reader: the first line of
 * text in a comment ("#", "//") or in a docstring or block comment. It is read line by line and not
 * parsed: in the worst case a line of a string that looks like a comment describes the script. */
#include "service/script_cache.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define DESCRIPTION_LINES 50u /* of the code that are searched */

struct script_cache {
    struct store *store;
    struct store_script_quota quota;
    struct script_cache_stats stats;
};

struct script_cache_call {
    struct script_cache *cache;
    store_script_fn *done;
    void *arg;
};

struct script_cache *script_cache_new(struct store *store, const struct store_script_quota *quota)
{
    struct script_cache *cache = mem_new(struct script_cache);

    cache->store = store;
    cache->quota = *quota;
    return cache;
}

void script_cache_free(struct script_cache *cache)
{
    free(cache);
}

const struct store_script_quota *script_cache_quota(const struct script_cache *cache)
{
    return &cache->quota;
}

void script_cache_stats(const struct script_cache *cache, struct script_cache_stats *ret)
{
    *ret = cache->stats;
}

/* --- digest --- */

void script_digest(const char *language, const char *code, uint8_t ret[STORE_HASH_LEN])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned n = 0;

    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1 ||
        EVP_DigestUpdate(ctx, language, strlen(language) + 1) != 1 || EVP_DigestUpdate(ctx, code, strlen(code)) != 1 ||
        EVP_DigestFinal_ex(ctx, ret, &n) != 1 || n != STORE_HASH_LEN)
        abort(); /* only without memory */
    EVP_MD_CTX_free(ctx);
}

bool script_digest_parse(const char *text, uint8_t ret[STORE_HASH_LEN])
{
    static const char digits[] = "0123456789abcdef";

    if (strnlen(text, 2 * STORE_HASH_LEN + 1) != 2 * STORE_HASH_LEN)
        return false;
    for (size_t i = 0; i < 2 * STORE_HASH_LEN; i++) {
        const char *d = strchr(digits, text[i]);

        if (!d)
            return false;
        ret[i / 2] = (uint8_t)(ret[i / 2] << 4 | (d - digits));
    }
    return true;
}

void script_digest_format(const uint8_t digest[STORE_HASH_LEN], char ret[2 * STORE_HASH_LEN + 1])
{
    for (size_t i = 0; i < STORE_HASH_LEN; i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

/* --- description --- */

static bool script_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* A line after its indentation; *ret_len is its length without the blanks at its end. */
static const char *script_line(const char *p, const char **ret_next, size_t *ret_len)
{
    const char *end = p + strcspn(p, "\n");

    *ret_next = *end ? end + 1 : end;
    while (p < end && script_is_blank(*p))
        p++;
    while (end > p && script_is_blank(end[-1]))
        end--;
    *ret_len = (size_t)(end - p);
    return p;
}

/* Removes what opens a comment or a docstring from the line. False: the line is neither. *ret_open:
 * the text may begin on a later line. */
static bool script_line_opens_comment(const char **line, size_t *len, bool *ret_open)
{
    static const struct {
        const char *text;
        bool is_block;
    } openings[] = { { "#", false }, { "//", false }, { "/*", true }, { "\"\"\"", true }, { "'''", true } };

    for (size_t i = 0; i < ARRAY_LEN(openings); i++) {
        size_t n = strlen(openings[i].text);

        if (*len < n || memcmp(*line, openings[i].text, n) != 0)
            continue;
        *ret_open = openings[i].is_block;
        *line += n;
        *len -= n;
        return true;
    }
    return false;
}

/* Removes the marks of a comment, and the quotes at the end of a docstring, around the text. */
static void script_line_trim_marks(const char **line, size_t *len)
{
    while (*len && (script_is_blank(**line) || strchr("#/*-=!", **line))) {
        (*line)++;
        (*len)--;
    }
    while (*len && (script_is_blank((*line)[*len - 1]) || strchr("*/\"'#-=", (*line)[*len - 1])))
        (*len)--;
}

/* A line for the interpreter or the editor: "#!/bin/sh", "# -*- coding: utf-8 -*-". */
static bool script_line_is_directive(const char *line, size_t len)
{
    return (len >= 2 && memcmp(line, "#!", 2) == 0) || memmem(line, len, "-*-", 3) ||
           (len >= 1 && *line == '#' && memmem(line, len, "coding:", 7));
}

static char *script_bounded_text(const char *text, size_t len)
{
    size_t n = 0, step;
    uint32_t c;

    while (n < len && (step = str_utf8(text + n, len - n, &c)) && n + step <= STORE_SCRIPT_DESCRIPTION_MAX)
        n += step;
    if (n == 0)
        return NULL;
    char *copy = str_dup_n(text, n);
    str_strip_control_chars(copy);
    return copy;
}

/* The length of the line before the end of a docstring or block comment. */
static size_t script_block_text_len(const char *line, size_t len)
{
    static const char *const ends[] = { "*/", "\"\"\"", "'''" };

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        const char *end = memmem(line, len, ends[i], strlen(ends[i]));

        len = end ? (size_t)(end - line) : len;
    }
    return len;
}

static bool script_line_closes_comment(const char *line, size_t len)
{
    return (len == 2 && memcmp(line, "*/", 2) == 0) ||
           (len == 3 && (memcmp(line, "\"\"\"", 3) == 0 || memcmp(line, "'''", 3) == 0));
}

char *script_description(const char *code)
{
    bool open = false;

    for (unsigned i = 0; i < DESCRIPTION_LINES && *code; i++) {
        size_t len;
        const char *line = script_line(code, &code, &len);

        if (open && script_line_closes_comment(line, len)) {
            open = false;
            continue;
        }
        if (script_line_is_directive(line, len) || (!open && !script_line_opens_comment(&line, &len, &open)))
            continue;
        if (open)
            len = script_block_text_len(line, len);
        script_line_trim_marks(&line, &len);
        if (len)
            return script_bounded_text(line, len);
    }
    return NULL;
}

/* --- keep --- */

static void script_cache_on_kept(void *arg, const struct err *err, const struct store_script *row, bool is_new,
                                 uint64_t evicted)
{
    struct script_cache_call *call = arg;
    struct script_cache_stats *s = &call->cache->stats;

    if (!err) {
        s->kept += is_new;
        s->reused += !is_new;
        s->evicted += evicted;
    } else if (err->id == ERR_LIMIT) {
        s->refused++;
    }
    if (call->done)
        call->done(call->arg, err, row);
    free(call);
}

struct script_cache_call *script_cache_keep(struct script_cache *cache, const struct script_run *run,
                                            store_script_fn *done, void *arg)
{
    struct script_cache_call *call = mem_new(struct script_cache_call);
    auto_free char *description = script_description(run->code);
    struct store_script row = { .language = (char *)run->language,
                                .description = description,
                                .code = (char *)run->code,
                                .size_bytes = strlen(run->code),
                                .created_by = run->created_by && *run->created_by ? (char *)run->created_by : NULL };

    call->cache = cache;
    call->done = done;
    call->arg = arg;
    id_new("sc", row.id);
    str_copy(row.owner, sizeof(row.owner), run->tenant);
    str_copy(row.last_execution, sizeof(row.last_execution), run->execution);
    row.created_ms = row.last_used_ms = clock_real_ms();
    script_digest(run->language, run->code, row.digest);
    store_script_keep(cache->store, &row, &cache->quota, script_cache_on_kept, call);
    return call;
}

void script_cache_detach(struct script_cache_call *call)
{
    call->done = NULL;
}
