#include "service/template_check.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/template_availability.h"

/* NULL: nothing is to be checked. PYTHONPATH may name directories of the sandbox, which are not
 * the host's. */
static const char *template_checked_preload(const struct spec *spec)
{
    for (size_t i = 0; i < spec->nenv; i++)
        if (str_starts(spec->env[i], "PYTHONPATH="))
            return NULL;
    return str_eq(spec->runtime, "python") ? spec->preload : NULL;
}

static void template_check_write_missing(const struct template_availability *a, struct jsonw *w)
{
    const char *p = a->missing.len ? a->missing.data : "";

    jsonw_karray(w, "missing");
    while (*p) {
        auto_free char *name = str_dup_n(p, strcspn(p, ","));

        jsonw_str(w, name);
        p += strlen(name);
        p += *p == ',';
    }
    jsonw_end_array(w);
}

void template_check_write_json(const struct host_modules *h, const char *spec_json, struct jsonw *w)
{
    auto_json *body = NULL;
    struct spec spec;

    spec_init(&spec);
    if (json_input_parse(spec_json, strlen(spec_json), &body, NULL) == 0)
        (void)spec_read(&spec, body, SPEC_OF_TEMPLATE, NULL, &(struct err){ 0 });
    auto_template_availability a;
    template_availability_init(&a, spec.driver, spec.runtime, template_checked_preload(&spec), host_modules_last(h));
    jsonw_kbool(w, "available", a.available);
    if (!a.available) {
        jsonw_kstr(w, "reason", a.reason.data);
        jsonw_kstr(w, "fix", a.fix.data);
        template_check_write_missing(&a, w);
    }
    spec_done(&spec);
}

struct template_requirement {
    const char *name;
    const struct spec *spec;
    template_checked_fn *done;
    void *arg;
};

static void template_requirement_on_modules(void *arg, const struct python_modules *modules)
{
    auto_free struct template_requirement *r = arg;
    auto_template_availability a;
    auto_buf details = { 0 };
    struct err err = { 0 };
    struct jsonw w;

    template_availability_init(&a, r->spec->driver, "", r->spec->preload, modules);
    if (a.available) {
        r->done(r->arg, NULL, NULL);
        return;
    }
    err_set(&err, ERR_TEMPLATE_UNAVAILABLE, "template %.63s: %s; %s", r->name, a.reason.data, a.fix.data);
    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "template", r->name);
    template_check_write_missing(&a, &w);
    jsonw_kstr(&w, "fix", a.fix.data);
    jsonw_end_object(&w);
    r->done(r->arg, &err, details.data);
}

void template_check_modules(struct host_modules *h, const char *name, const struct spec *spec, uint64_t now_ns,
                            template_checked_fn *done, void *arg)
{
    const char *preload = template_checked_preload(spec);

    if (!preload) {
        done(arg, NULL, NULL);
        return;
    }
    struct template_requirement *r = mem_new(struct template_requirement);
    *r = (struct template_requirement){ name, spec, done, arg };
    host_modules_get(h, preload, now_ns, template_requirement_on_modules, r);
}
