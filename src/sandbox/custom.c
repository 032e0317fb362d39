#include "sandbox/custom.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "doc/doc.h"
#include "polfile/policy_file.h"

#include <stdio.h>

/* --- lines and their paths --- */

struct lines {
    struct buf text;
    char **path; /* of line i + 1 */
    size_t n;
};

static void lines_done(struct lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->path[i]);
    free(l->path);
    if (l->text.data)
        explicit_bzero(l->text.data, l->text.len); /* variables may be secrets */
    buf_done(&l->text);
}

static void new_line(struct lines *l, const char *path)
{
    if (l->n > 0)
        buf_add(&l->text, "\n", 1);
    l->path = mem_resize(l->path, l->n + 1, sizeof(char *));
    l->path[l->n++] = str_dup(path);
}

static void put_scalar(struct lines *l, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);

    if (text)
        buf_add(&l->text, text, strlen(text));
    free(text);
}

static void put_value(struct lines *l, const json_t *v, const char *path);

static void put_object(struct lines *l, const json_t *v, const char *path)
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
        new_line(l, below);
        put_scalar(l, name);
        json_decref(name);
        buf_add(&l->text, ": ", 2);
        put_value(l, value, below);
    }
    buf_add(&l->text, "}", 1);
}

static void put_value(struct lines *l, const json_t *v, const char *path)
{
    if (json_is_object(v)) {
        put_object(l, v, path);
        return;
    }
    if (!json_is_array(v)) {
        put_scalar(l, v);
        return;
    }
    buf_add(&l->text, "[", 1);
    for (size_t i = 0; i < json_array_size(v); i++) {
        auto_free char *below = str_printf("%s[%zu]", path, i);

        if (i > 0)
            buf_add(&l->text, ",", 1);
        new_line(l, below);
        put_value(l, json_array_get(v, i), below);
    }
    buf_add(&l->text, "]", 1);
}

static const char *path_of(const struct lines *l, uint32_t line)
{
    return line >= 1 && line <= l->n ? l->path[line - 1] : "policy";
}

/* --- what is wrong --- */

static char *details_of(const struct lines *l, const struct problems *pr)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "errors");
    jsonw_array(&w);
    for (size_t i = 0; i < pr->n; i++) {
        const struct problem *p = &pr->list[i];

        jsonw_object(&w);
        jsonw_kstr(&w, "path", path_of(l, p->line));
        jsonw_kstr(&w, "code", err_info(p->id)->code);
        jsonw_kstr(&w, "message", p->msg);
        jsonw_kstr(&w, "fix", p->fix[0] ? p->fix : err_info(p->id)->fix);
        jsonw_end_object(&w);
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    return out.data;
}

static int refuse(const struct lines *l, const struct problems *pr, char **ret_details, struct err *err)
{
    const struct problem *first = &pr->list[0];

    *ret_details = details_of(l, pr);
    err_set(err, first->id, "%.80s: %.150s", path_of(l, first->line), first->msg);
    str_tame(err->msg);
    return -1;
}

/* What a policy file may say and a request may not. */
static void find_foreign(const struct policy *p, struct problems *pr)
{
    static const char no_paths[] = "Send files with PUT .../files; a server lends nothing of its host.";

    if (p->workspace_dir)
        problems_add(pr, ERR_POLICY_FEATURE, p->workspace_line, 0, no_paths,
                     "filesystem.workspace: over REST a workspace is memory");
    for (size_t i = 0; i < p->npaths; i++)
        if (p->paths[i].src)
            problems_add(pr, ERR_POLICY_FEATURE, p->paths[i].line, 0, no_paths,
                         "a path of the host cannot be bound over REST");
    for (size_t i = 0; i < p->nenv; i++)
        if (p->env[i].pass)
            problems_add(pr, ERR_POLICY_FEATURE, p->env[i].line, 0, "Say its value in env.",
                         "environment.pass: there is no caller whose variables could be passed on");
    if (p->level == LEVEL_HIGH)
        problems_add(pr, ERR_LEVEL_UNAVAILABLE, 1, 0, NULL,
                     "extends: high needs a second kernel behind the sandbox, and this server has no driver for one");
}

/* --- taking it --- */

/* What is told of it again: values of variables are not. */
static char *shown(const json_t *document)
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

static int take_env(struct spec *s, const struct policy *p, struct err *err)
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

static int take(struct spec *s, const struct policy *p, const json_t *document, struct err *err)
{
    if (take_env(s, p, err) < 0)
        return -1;
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p->limit_line[i]) {
            s->limits.v[i] = p->limits.v[i];
            s->chosen |= 1ull << i;
        }
    s->level = LEVEL_CUSTOM;
    str_copy(s->policy_name, sizeof(s->policy_name), p->name);
    s->has_profile = p->has_profile;
    s->profile = p->profile;
    s->grants = p->grants;
    s->nhide = 0;
    for (size_t i = 0; i < p->npaths; i++)
        s->nhide += str_copy(s->hide[s->nhide], sizeof(s->hide[0]), p->paths[i].dst);
    memcpy(s->deny, p->deny, sizeof(s->deny));
    free(s->policy);
    s->policy = shown(document);
    return 0;
}

/* A file may say `A:` and mean the empty text; in JSON that is null, and somebody's mistake. */
static int check_texts(const json_t *document, struct err *err)
{
    json_t *set = json_object_get(json_object_get(document, "environment"), "set"), *value;
    const char *name;

    json_object_foreach(set, name, value) if (json_is_null(value))
    {
        err_set(err, ERR_POLICY_VALUE, "policy.environment.set.%.60s: a text is needed, not null", name);
        body_tame(err);
        return -1;
    }
    return 0;
}

int custom_read(struct spec *s, const json_t *document, char **ret_details, struct err *err)
{
    struct lines l = { 0 };
    struct problems *pr = mem_new(struct problems);
    struct policy *p = mem_new(struct policy);
    int rc = -1;

    *ret_details = NULL;
    if (check_texts(document, err) < 0)
        goto out;
    new_line(&l, "policy");
    put_value(&l, document, "policy");
    if (policy_file_read(l.text.data, l.text.len, "policy", "/", p, pr) == 0) {
        find_foreign(p, pr);
        rc = pr->n ? refuse(&l, pr, ret_details, err) : take(s, p, document, err);
        policy_done(p);
    } else {
        refuse(&l, pr, ret_details, err);
    }
out:
    lines_done(&l);
    free(p);
    free(pr);
    return rc;
}

/* --- the floor --- */

int custom_floor_value(const struct floor *f, enum limit l, const char *name, uint64_t value, struct err *err)
{
    char have[LIMIT_TEXT], most[LIMIT_TEXT];

    if (!f || !value || !(f->bounded >> l & 1) || !floor_exceeded(l, value, f->max[l]))
        return 0;
    return err_set(err, ERR_POLICY_FLOOR, "%.60s: %s is more than the %s that the operator of this server allows", name,
                   limit_print(l, value, have), limit_print(l, f->max[l], most));
}

int custom_floor(struct spec *s, const struct floor *f, struct err *err)
{
    if (!f || !f->file)
        return 0;
    if (f->level == LEVEL_HIGH)
        return err_set(err, ERR_POLICY_FLOOR, "level: the operator demands high, and this server has no driver for it");
    for (unsigned g = 0; g < GRANT_COUNT; g++)
        if (f->forbidden & s->grants & 1u << g)
            return err_set(err, ERR_POLICY_FLOOR, "policy: the operator of this server forbids the grant '%s'",
                           grant_name((enum grant)g));
    for (size_t i = 0; i < FILTER_DENY_WORDS; i++)
        s->deny[i] |= f->deny[i];
    uint64_t lowered = floor_lower(f, &s->limits, s->chosen);
    s->chosen |= lowered; /* so that nothing raises it again */
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (custom_floor_value(f, (enum limit)i, spec_limit_name((enum limit)i), s->limits.v[i], err) < 0)
            return -1;
    return 0;
}
