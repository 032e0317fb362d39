/* The answer of a check of code, as an event of a language kernel; the rest of the input is taken
 * as code.
 *
 * Checked in addition to memory errors: the report is JSON, its numbers are in their bounds, and a
 * report that was refused keeps nothing. */
#include "core/base/buf.h"
#include "core/base/mem.h"
#include "service/validate/code_report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_json(const struct code_report *r)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    code_report_write(r, &w);
    json_t *v = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    must(json_is_object(v));
    must(json_array_size(json_object_get(v, "violations")) == r->nviolations);
    must(json_is_true(json_object_get(v, "isSafe")) == code_report_is_safe(r));
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    auto_(code_report) r = code_report_new("python", REPORT_FULL);
    auto_(code_report) scanned = code_report_new("python", REPORT_FULL);
    json_t *answer = json_loadb((const char *)data, len, JSON_REJECT_DUPLICATES, NULL);
    auto_buf code = { 0 };
    struct err err = { 0 };

    buf_add(&code, data, len);
    (void)code_report_scan(scanned, code.data ? code.data : "");
    check_json(scanned);
    if (code_report_read(r, answer, &err) < 0)
        must(r->nviolations == 0 && !r->imports && !r->pure);
    else
        must(r->nviolations <= REPORT_VIOLATIONS_MAX && json_array_size(r->imports) <= REPORT_IMPORTS_MAX);
    (void)code_report_refusal(r, &err);
    check_json(r);
    json_decref(answer);
    return 0;
}
