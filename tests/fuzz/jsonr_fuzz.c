/* JSON input of `cove explain`.
 *
 * Checked in addition to memory errors: an error has a message; an accepted document is not
 * deeper than the bound, has UTF-8 in every string, and reads the same after it is written
 * again. */
#include "core/base/jsonr.h"
#include "core/base/jsonw.h"
#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_text(const char *s)
{
    size_t left = strlen(s);

    while (left > 0) {
        uint32_t c;
        size_t n = str_utf8(s, left, &c);

        must(n > 0);
        s += n;
        left -= n;
    }
}

static void write_again(const struct json *j, struct jsonw *w, int depth)
{
    uint64_t v;

    must(depth <= JSON_DEPTH_MAX);
    if (j->key) {
        check_text(j->key);
        jsonw_key(w, j->key);
    }
    switch (j->kind) {
    case JSON_NULL:
        jsonw_null(w);
        break;
    case JSON_FALSE:
    case JSON_TRUE:
        jsonw_bool(w, j->kind == JSON_TRUE);
        break;
    case JSON_NUMBER:
        jsonw_u64(w, json_u64(j, &v) ? v : 7);
        break;
    case JSON_STRING:
        check_text(j->text);
        jsonw_str(w, j->text);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        (j->kind == JSON_ARRAY ? jsonw_array : jsonw_object)(w);
        for (const struct json *c = j->child; c; c = c->next)
            write_again(c, w, depth + 1);
        (j->kind == JSON_ARRAY ? jsonw_end_array : jsonw_end_object)(w);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_doc one = { 0 }, two = { 0 };
    struct err err = { 0 };
    auto_buf first = { 0 }, second = { 0 };
    struct jsonw w;

    if (json_read((const char *)data, size, &one, &err) < 0) {
        must(err.id == ERR_INVALID && err.msg[0]);
        return 0;
    }
    jsonw_init(&w, &first, 0);
    write_again(one.root, &w, 0);
    must(json_read(first.data, first.len, &two, &err) == 0);
    jsonw_init(&w, &second, 0);
    write_again(two.root, &w, 0);
    must(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    json_doc_done(&one);
    json_doc_done(&two);
    return 0;
}
