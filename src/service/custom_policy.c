#include "service/custom_policy.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/doc.h"
#include "policy/file/policy_file.h"
#include "policy/operator_network.h"
#include "sandbox/drivers.h"
#include "service/network_field.h"

#include <stdio.h>

/* --- lines and their paths --- */

struct policy_lines {
    struct buf text;
    char **paths; /* the path of line i + 1 */
    size_t n;
};

static void policy_lines_done(struct policy_lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->paths[i]);
    free(l->paths);
    if (l->text.data)
        explicit_bzero(l->text.data, l->text.len); /* variables may be secrets */
    buf_done(&l->text);
}

static void policy_lines_add(struct policy_lines *l, const char *path)
{
    if (l->n > 0)
        buf_add(&l->text, "\n", 1);
    l->paths = mem_resize(l->paths, l->n + 1, sizeof(char *));
    l->paths[l->n++] = str_dup(path);
}

static void policy_lines_put_scalar(struct policy_lines *l, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);

    if (text)
        buf_add(&l->text, text, strlen(text));
    free(text);
}

static void policy_lines_put_value(struct policy_lines *l, const json_t *v, const char *path);

static void policy_lines_put_object(struct policy_lines *l, const json_t *v, const char *path)
{
    const char *key;
    json_t *value;
    bool first = true;

    buf_add(&l->text, "{", 1);
    json_object_foreach((json_t *)v, key, value)
    {
        auto_free char *below = str_printf("%s.%s", path, key);
        json_t *name = json_string(key);

        if (!first)
            buf_add(&l->text, ",", 1);
        first = false;
        policy_lines_add(l, below);
        policy_lines_put_scalar(l, name);
        json_decref(name);
        buf_add(&l->text, ": ", 2);
        policy_lines_put_value(l, value, below);
    }
    buf_add(&l->text, "}", 1);
}

static void policy_lines_put_value(struct policy_lines *l, const json_t *v, const char *path)
{
    if (json_is_object(v)) {
        policy_lines_put_object(l, v, path);
        return;
    }
    if (!json_is_array(v)) {
        policy_lines_put_scalar(l, v);
        return;
    }
    buf_add(&l->text, "[", 1);
    for (size_t i = 0; i < json_array_size(v); i++) {
        auto_free char *below = str_printf("%s[%zu]", path, i);

        if (i > 0)
            buf_add(&l->text, ",", 1);
        policy_lines_add(l, below);
        policy_lines_put_value(l, json_array_get(v, i), below);
    }
    buf_add(&l->text, "]", 1);
}

static const char *policy_lines_path(const struct policy_lines *l, uint32_t line)
{
    return line >= 1 && line <= l->n ? l->paths[line - 1] : "policy";
}

/* --- problems --- */

static char *custom_policy_details_json(const struct policy_lines *l, const struct problems *pr)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "errors");
    for (size_t i = 0; i < pr->n; i++) {
        const struct problem *p = &pr->list[i];

        jsonw_object(&w);
        jsonw_kstr(&w, "path", policy_lines_path(l, p->line));
        jsonw_kstr(&w, "code", err_info(p->id)->code);
        jsonw_kstr(&w, "message", p->msg);
        if (p->fix[0] || err_fix(p->id))
            jsonw_kstr(&w, "fix", p->fix[0] ? p->fix : err_fix(p->id));
        jsonw_end_object(&w);
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    return out.data;
}

static int custom_policy_set_error(const struct policy_lines *l, const struct problems *pr, char **ret_details,
                                   struct err *err)
{
    const struct problem *first = &pr->list[0];

    *ret_details = custom_policy_details_json(l, pr);
    err_set(err, first->id, "%.80s: %.150s", policy_lines_path(l, first->line), first->msg);
    str_strip_control_chars(err->msg);
    return -1;
}

/* Fields that a policy file may have and a request may not. */
static void custom_policy_find_host_only(const struct policy *p, struct problems *pr)
{
    static const char no_paths[] = "Send files with PUT .../files; a server does not share files of its host.";

    if (p->workspace_dir)
        problems_add(pr, ERR_POLICY_FEATURE, p->workspace_line, 0, no_paths,
                     "filesystem.workspace: a server has no directory of yours to mount; the workspace is in memory");
    for (size_t i = 0; i < p->npaths; i++)
        if (p->paths[i].src)
            problems_add(pr, ERR_POLICY_FEATURE, p->paths[i].line, 0, no_paths,
                         "a request cannot bind a path of the host");
    for (size_t i = 0; i < p->nenv; i++)
        if (p->env[i].is_pass_through)
            problems_add(pr, ERR_POLICY_FEATURE, p->env[i].line, 0, "Set its value in env.",
                         "environment.pass: a request has no environment to pass variables from");
    if (p->level == LEVEL_HIGH)
        problems_add(pr, ERR_LEVEL_UNAVAILABLE, 1, 0, NULL,
                     "extends: high requires a driver with a second kernel (gVisor or a microVM), which this server "
                     "does not have; use standard");
}

/* --- applying the policy --- */

/* The document as clients see it again: without the values of variables. */
static char *custom_policy_public_json(const json_t *document)
{
    json_t *copy = json_deep_copy(document);
    json_t *set = json_object_get(json_object_get(copy, "environment"), "set");
    const char *name;
    json_t *value;
    void *next;

    json_object_foreach_safe(set, next, name, value) json_object_set_new(set, name, json_string(""));
    char *text = json_dumps(copy, JSON_COMPACT);
    json_decref(copy);
    return text ? text : str_dup("{}");
}

static int custom_policy_copy_env(struct spec *s, const struct policy *p, struct err *err)
{
    json_t *set = json_object();

    for (size_t i = 0; i < p->nenv; i++) {
        size_t n = strcspn(p->env[i].text, "=");
        auto_free char *name = str_dup_n(p->env[i].text, n);

        json_object_set_new(set, name, json_string(p->env[i].text + n + 1));
    }
    int rc = spec_read_env(set, "policy.environment.set", &s->env, &s->nenv, err);
    json_decref(set);
    return rc;
}

static int custom_policy_copy_to_spec(struct spec *s, const struct policy *p, const json_t *document, struct err *err)
{
    if (custom_policy_copy_env(s, p, err) < 0)
        return -1;
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i]) {
            s->limits.v[i] = p->limits.v[i];
            s->explicit_limits |= 1ull << i;
        }
    s->level = LEVEL_CUSTOM;
    if (p->driver_line) {
        s->driver = p->driver;
        s->has_driver = true;
    }
    if (p->network_line) {
        network_policy_done(&s->network);
        network_policy_copy(&s->network, &p->network);
    }
    str_copy(s->policy_name, sizeof(s->policy_name), p->name);
    s->has_profile = p->has_profile;
    s->profile = p->profile;
    s->grants = p->grants;
    s->nhidden_paths = 0;
    for (size_t i = 0; i < p->npaths; i++)
        s->nhidden_paths += str_copy(s->hidden_paths[s->nhidden_paths], sizeof(s->hidden_paths[0]), p->paths[i].dst);
    memcpy(s->deny, p->deny, sizeof(s->deny));
    free(s->policy);
    s->policy = custom_policy_public_json(document);
    return 0;
}

/* In a policy file `A:` means the empty string. In JSON that would be null, which is probably a
 * mistake. */
static int custom_policy_check_env_values(const json_t *document, struct err *err)
{
    json_t *set = json_object_get(json_object_get(document, "environment"), "set"), *value;
    const char *name;

    json_object_foreach(set, name, value) if (json_is_null(value))
    {
        err_set(err, ERR_POLICY_VALUE, "policy.environment.set.%.60s: must be a string, not null", name);
        err_sanitize(err);
        return -1;
    }
    return 0;
}

int custom_policy_read(struct spec *s, const json_t *document, char **ret_details, struct err *err)
{
    struct policy_lines l = { 0 };
    struct problems *pr = mem_new(struct problems);
    struct policy *p = mem_new(struct policy);
    int rc = -1;

    *ret_details = NULL;
    if (custom_policy_check_env_values(document, err) < 0)
        goto out;
    policy_lines_add(&l, "policy");
    policy_lines_put_value(&l, document, "policy");
    if (policy_file_read(l.text.data, l.text.len, "policy", "/", p, pr) == 0) {
        custom_policy_find_host_only(p, pr);
        rc = pr->n ? custom_policy_set_error(&l, pr, ret_details, err)
                   : custom_policy_copy_to_spec(s, p, document, err);
        policy_done(p);
    } else {
        custom_policy_set_error(&l, pr, ret_details, err);
    }
out:
    policy_lines_done(&l);
    free(p);
    free(pr);
    return rc;
}

/* --- operator limits --- */

int custom_policy_check_operator_limit(const struct operator_limits *f, enum limit l, const char *name, uint64_t value,
                                       struct err *err)
{
    char have[LIMIT_TEXT], most[LIMIT_TEXT];

    if (!f || !value || !(f->has_max >> l & 1) || !operator_limits_exceeded(l, value, f->max[l]))
        return 0;
    return err_set(err, ERR_POLICY_OPERATOR_LIMIT,
                   "%.60s: %s is more than the %s that the operator of this server allows", name,
                   limit_print(l, value, have), limit_print(l, f->max[l], most));
}

int custom_policy_apply_network(const struct operator_limits *f, struct network_policy *p, struct err *err)
{
    if (operator_network_check(f, p, "network", "the operator of this server", err) < 0 ||
        operator_network_narrow(f, p, err) < 0)
        return -1;
    return network_field_check_addresses(p, f ? f->open_ranges : NULL, f ? f->nopen_ranges : 0, err);
}

int custom_policy_apply_operator_limits(struct spec *s, const struct operator_limits *f, struct err *err)
{
    uint32_t forbidden = f ? f->forbidden_drivers : 0;

    if (!s->has_driver)
        s->driver = driver_default(forbidden);
    s->has_driver = true;
    if (driver_check_allowed(forbidden, s->driver, "driver", "the operator of this server", err) < 0 ||
        drivers_check_network(s->driver, s->network.mode, err) < 0 ||
        custom_policy_apply_network(f, &s->network, err) < 0)
        return -1;
    if (!f || !f->file)
        return 0;
    if (f->level == LEVEL_HIGH)
        return err_set(err, ERR_POLICY_OPERATOR_LIMIT,
                       "level: the operator requires high, but this server has no driver for it");
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (f->forbidden_grants & s->grants & 1u << g)
            return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "policy: the operator of this server forbids the grant '%s'",
                           grant_name((enum grant)g));
    for (size_t i = 0; i < FILTER_DENY_WORDS; i++)
        s->deny[i] |= f->deny[i];
    uint64_t lowered = operator_limits_lower(f, &s->limits, s->explicit_limits);
    s->explicit_limits |= lowered; /* so that spec_finish does not raise a lowered limit */
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (custom_policy_check_operator_limit(f, (enum limit)i, spec_limit_name((enum limit)i), s->limits.v[i], err) <
            0)
            return -1;
    return 0;
}
