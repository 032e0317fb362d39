/* The body of a request that creates a sandbox.
 *
 * Checked in addition to memory errors: an error has a message without control characters; an
 * accepted body stays within every range of the table of limits, and reads the same from its
 * stored form. */
#include "core/base/buf.h"
#include "service/spec.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_message(const struct err *err)
{
    must(err->id != ERR_NONE && err->msg[0]);
    for (const char *p = err->msg; *p; p++)
        must((unsigned char)*p >= ' ' && *p != 0x7f);
}

static void check_limits(const struct spec *s)
{
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);

        must(s->limits.v[i] >= info->min && s->limits.v[i] <= info->max);
    }
}

static bool read_one(const char *text, size_t len, struct spec *ret)
{
    struct err err = { 0 };
    json_t *body = NULL;

    spec_init(ret);
    if (json_input_parse(text, len, &body, &err) < 0) {
        check_message(&err);
        return false;
    }
    bool ok = spec_read(ret, body, SPEC_OF_SANDBOX, NULL, &err) == 0 && spec_finish(ret, &err) == 0;
    json_decref(body);
    if (!ok)
        check_message(&err);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spec one, two = { 0 };
    auto_buf out = { 0 };
    struct jsonw w;

    if (read_one((const char *)data, size, &one)) {
        check_limits(&one);
        must(one.nenv <= SPEC_ENV_MAX);
        jsonw_init(&w, &out, 0);
        jsonw_object(&w);
        spec_json(&one, &w);
        jsonw_end_object(&w);
        must(read_one(out.data, out.len, &two));
        must(memcmp(&one.limits, &two.limits, sizeof(one.limits)) == 0);
        must(one.idle_action == two.idle_action && one.cpu_pinning == two.cpu_pinning);
    }
    spec_done(&one);
    spec_done(&two);
    return 0;
}
