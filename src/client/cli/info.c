/* The verbs that only print information. */
#include "client/cli/verbs.h"

#include "client/cli/completion.h"
#include "client/cli/help.h"
#include "client/cli/report.h"
#include "policy/languages.h"
#include "sandbox/drivers.h"
#include "sandbox/template_availability.h"
#include "sandbox/template_builtins.h"
#include "core/base/suggest.h"

#include "core/base/jsonw.h"
#include "core/base/str.h"

#include <limits.h>

static int info_refuse_extra_args(const struct args *a, int max, const char *verb)
{
    struct err err = { 0 };

    if (a->nrest <= max)
        return 0;
    err_set(&err, ERR_USAGE, "'cove %s': unexpected argument '%.60s'", verb, a->rest[max]);
    return report_error(&err, args_find(a, OPT_JSON) != NULL);
}

static void info_templates_json(struct jsonw *w)
{
    size_t n;
    const struct template_builtin *t = template_builtin_list(&n);
    auto_(python_modules) modules = python_modules_scan();

    jsonw_key(w, "templates");
    jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        auto_template_availability a;

        template_availability_init(&a, DRIVER_NATIVE, t[i].runtime, t[i].preload, modules);
        jsonw_object(w);
        jsonw_kstr(w, "name", t[i].name);
        jsonw_kstr(w, "runtime", t[i].runtime);
        jsonw_kbool(w, "available", a.available);
        if (!a.available) {
            jsonw_kstr(w, "reason", a.reason.data);
            jsonw_kstr(w, "fix", a.fix.data);
        }
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

/* Templates that are usable are not listed: `cove run` has no use for them. */
static void info_unavailable_templates(struct buf *out)
{
    size_t n;
    const struct template_builtin *t = template_builtin_list(&n);
    auto_(python_modules) modules = python_modules_scan();

    for (size_t i = 0; i < n; i++) {
        auto_template_availability a;

        template_availability_init(&a, DRIVER_NATIVE, t[i].runtime, t[i].preload, modules);
        if (!a.available && a.missing.len)
            buf_addf(out, "template %s not usable: %s; %s\n", t[i].name, a.reason.data, a.fix.data);
    }
}

static void info_runtimes_json(struct buf *out)
{
    size_t n;
    const struct language *rt = languages_all(&n);
    struct jsonw w;

    jsonw_init(&w, out, report_json_indent());
    jsonw_object(&w);
    jsonw_key(&w, "runtimes");
    jsonw_array(&w);
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct err err = { 0 };
        bool found = drivers_ops(DRIVER_NATIVE)->find_language("", &rt[i], path, sizeof(path), &err) == 0;

        jsonw_object(&w);
        jsonw_kstr(&w, "name", rt[i].name);
        jsonw_kbool(&w, "available", found);
        jsonw_kstr(&w, found ? "path" : "reason", found ? path : err.msg);
        jsonw_key(&w, "endings");
        jsonw_array(&w);
        for (size_t k = 0; rt[i].extensions[k]; k++)
            jsonw_str(&w, rt[i].extensions[k]);
        jsonw_end_array(&w);
        jsonw_kstr(&w, "profile", profile_name(rt[i].profile));
        jsonw_end_object(&w);
    }
    jsonw_end_array(&w);
    info_templates_json(&w);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}

int verb_runtimes(const struct args *a)
{
    auto_buf out = { 0 };
    size_t n;
    const struct language *rt = languages_all(&n);
    int rc = info_refuse_extra_args(a, 0, "runtimes");

    if (rc)
        return rc;
    if (args_find(a, OPT_JSON)) {
        info_runtimes_json(&out);
        return report_text(&out);
    }
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct err err = { 0 };

        if (drivers_ops(DRIVER_NATIVE)->find_language("", &rt[i], path, sizeof(path), &err) == 0) {
            buf_addf(&out, "%-8s %-22s", rt[i].name, path);
            for (size_t k = 0; rt[i].extensions[k]; k++)
                buf_addf(&out, " %s", rt[i].extensions[k]);
            buf_adds(&out, "\n");
        } else {
            buf_addf(&out, "%-8s not usable: %s\n", rt[i].name, err.msg);
        }
    }
    info_unavailable_templates(&out);
    return report_text(&out);
}

static void info_error_json(struct jsonw *w, const struct err_info *e)
{
    jsonw_object(w);
    jsonw_kstr(w, "code", e->code);
    jsonw_kstr(w, "cause", e->cause);
    jsonw_kstr(w, "fix", e->fix);
    jsonw_ki64(w, "exitStatus", e->exit);
    jsonw_ki64(w, "httpStatus", e->http);
    jsonw_end_object(w);
}

static int info_unknown_error_code(const char *code, bool json)
{
    struct suggest s;
    struct err err = { 0 };

    suggest_init(&s, code);
    for (int i = 1; i < ERR_COUNT; i++)
        suggest_offer(&s, err_info((enum err_id)i)->code);
    if (s.best)
        err_set(&err, ERR_MISSING, "unknown error code '%.60s'; did you mean '%s'?", code, s.best);
    else
        err_set(&err, ERR_MISSING, "unknown error code '%.60s'; 'cove errors' lists the codes", code);
    return report_error(&err, json);
}

int verb_errors(const struct args *a)
{
    const char *code = a->nrest > 0 ? a->rest[0] : NULL;
    bool json = args_find(a, OPT_JSON) != NULL, found = false;
    auto_buf out = { 0 };
    struct jsonw w;
    int rc = info_refuse_extra_args(a, 1, "errors");

    if (rc)
        return rc;
    jsonw_init(&w, &out, report_json_indent());
    if (json) {
        jsonw_object(&w);
        jsonw_key(&w, "errors");
        jsonw_array(&w);
    }
    for (int i = 1; i < ERR_COUNT; i++) {
        const struct err_info *e = err_info((enum err_id)i);

        if (code && !str_eq(code, e->code))
            continue;
        if (json)
            info_error_json(&w, e);
        else
            buf_addf(&out, "%s%s\n  cause: %s\n  fix:   %s\n  exit status %d\n", found ? "\n" : "", e->code, e->cause,
                     e->fix, e->exit);
        found = true;
    }
    if (!found)
        return info_unknown_error_code(code, json);
    if (json) {
        jsonw_end_array(&w);
        jsonw_end_object(&w);
        buf_adds(&out, "\n");
    }
    return report_text(&out);
}

int verb_completion(const struct args *a, const struct cli_setting *server)
{
    auto_buf out = { 0 };
    struct err err = { 0 };
    int rc = info_refuse_extra_args(a, 1, "completion");

    if (rc)
        return rc;
    if (a->nrest == 1 && completion_script(a->rest[0], server, &out))
        return report_text(&out);
    err_set(&err, ERR_USAGE, "usage: cove completion bash|zsh|fish");
    return report_error(&err, false);
}

int verb_help(const struct args *a, const char *version)
{
    const struct cli_verb *v = a->nrest > 0 ? cli_verb_find(a->rest[0]) : NULL;
    auto_buf out = { 0 };
    struct err err = { 0 };
    int rc = info_refuse_extra_args(a, 1, "help");

    if (rc)
        return rc;
    if (a->nrest > 0 && !v) {
        err_set(&err, ERR_USAGE, "unknown verb '%.60s'; 'cove help' lists the verbs", a->rest[0]);
        return report_error(&err, false);
    }
    if (v)
        help_verb(&out, v);
    else
        help_overview(&out, version);
    return report_text(&out);
}

int verb_version(const char *version)
{
    auto_buf out = { 0 };

    buf_addf(&out, "cove %s\n", version);
    return report_text(&out);
}

int verb_gendocs(int argc, char **argv)
{
    const struct cli_verb *v = argc > 1 ? cli_verb_find(argv[1]) : NULL;
    auto_buf out = { 0 };
    struct err err = { 0 };

    if (str_eq(argv[0], "__man") && (argc == 1 || v))
        help_man(&out, v);
    else if (str_eq(argv[0], "__docs") && argc > 1 && str_eq(argv[1], "cli"))
        help_markdown(&out);
    else if (str_eq(argv[0], "__docs") && argc > 1 && str_eq(argv[1], "errors"))
        help_errors_markdown(&out);
    else {
        err_set(&err, ERR_USAGE, "usage: cove __man [VERB], or cove __docs cli|errors");
        return report_error(&err, false);
    }
    return report_text(&out);
}
