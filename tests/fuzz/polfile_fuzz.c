/* Policy files, floors and settings to import: a file from a cloned repository, read with the
 * rights of the user of cove. The same bytes go through all three readers. */
#include "policy/policy.h"
#include "policy/file/policy_file.h"
#include "policy/file/srt_import.h"

static void check_problems(struct problems *pr)
{
    struct buf out = { 0 };

    if (pr->n == 0 || pr->n > PROBLEMS_MAX)
        abort(); /* a refusal says why */
    for (size_t i = 0; i < pr->n; i++)
        if (pr->list[i].id == ERR_NONE || !pr->list[i].msg[0])
            abort();
    problems_print(pr, &out);
    buf_done(&out);
}

static void try_policy(const char *data, size_t size)
{
    static struct problems pr;
    struct operator_limits none = { 0 }, f;
    struct policy p, q;
    struct err err = { 0 };
    struct buf out = { 0 };

    pr = (struct problems){ .file = "p" };
    if (policy_file_read(data, size, "p", "/d", &p, &pr) < 0) {
        check_problems(&pr);
        return;
    }
    canon_write(&p, &none, &out);
    if (canon_parse(out.data, out.len, &q, &f, &err) < 0)
        abort(); /* a policy that is accepted here is accepted there */
    buf_done(&out);
    policy_done(&p);
    policy_done(&q);
}

static void try_floor(const char *data, size_t size)
{
    static struct problems pr;
    struct operator_limits f = { 0 };

    pr = (struct problems){ .file = "f" };
    if (operator_limits_file_read(data, size, "f", &f, &pr) < 0)
        check_problems(&pr);
    operator_limits_done(&f);
}

static void try_import(const char *data, size_t size)
{
    static struct problems pr;
    struct buf out = { 0 }, said = { 0 };
    struct policy p;

    pr = (struct problems){ .file = "s" };
    if (srt_import(data, size, "s", &out, &said, &pr) < 0) {
        check_problems(&pr);
    } else if (policy_file_read(out.data, out.len, "p", "/d", &p, &pr) == 0) {
        policy_done(&p);
    } else {
        for (size_t i = 0; i < pr.n; i++) /* a value may be out of range for a policy, but its form is always valid */
            if (pr.list[i].id == ERR_POLICY_KEY || (pr.list[i].id == ERR_POLICY_SYNTAX && out.len < 200000))
                abort();
    }
    buf_done(&out);
    buf_done(&said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_policy((const char *)data, size);
    try_floor((const char *)data, size);
    try_import((const char *)data, size);
    return 0;
}
