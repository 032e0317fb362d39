/* Built-in templates are not in the store: a new version of the program brings its own, and a
 * stored template with the same name overrides the built-in one. */
#include "service/templates.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"
#include "core/doc/json_input.h"

#define TEMPLATE_NAMES_SHOWN 8 /* templates of the store in the error about an unknown one */

const char *template_builtin_name(size_t i)
{
    size_t n;
    const struct template_builtin *all = template_builtin_list(&n);

    return i < n ? all[i].name : NULL;
}

bool template_name_is_builtin(const char *name)
{
    return template_builtin_find(name) != NULL;
}

int template_as_runtime_error(struct err *err, const char *name)
{
    return err_set(err, ERR_RUNTIME_MISSING, "runtime: '%.63s' is a template; use \"template\": \"%.63s\"", name, name);
}

static void template_put_preload_json(struct jsonw *w, const char *names)
{
    jsonw_karray(w, "preload");
    for (const char *p = names; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        auto_free char *name = str_dup_n(p, n);

        jsonw_str(w, name);
        p += n;
    }
    jsonw_end_array(w);
}

char *template_builtin_json(const struct template_builtin *t)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "runtime", t->runtime);
    if (t->preload)
        template_put_preload_json(&w, t->preload);
    if (t->limits)
        buf_addf(&out, ",%s", t->limits);
    jsonw_end_object(&w);
    return str_dup(out.data);
}

void template_builtin_row(const struct template_builtin *t, struct store_template *ret)
{
    *ret = (struct store_template){ .generation = 1, .spec_json = template_builtin_json(t) };
    (void)str_copy(ret->name, sizeof(ret->name), t->name);
}

bool template_is_builtin(const struct store_template *row)
{
    return row->created_ms == 0;
}

struct template_lookup {
    struct store *store;
    const struct template_builtin *builtin;
    char *name;
    store_template_fn *done;
    void *arg;
};

static void template_lookup_answer(struct template_lookup *l, const struct err *err, const struct store_template *row)
{
    l->done(l->arg, err, row);
    free(l->name);
    free(l);
}

static void template_unknown_error(const char *name, const struct store_template *rows, size_t n, struct err *err)
{
    const char *known[TEMPLATE_NAMES_SHOWN + 8];
    size_t nbuiltin, count = 0;
    const struct template_builtin *all = template_builtin_list(&nbuiltin);
    auto_buf names = { 0 };
    struct suggest near;

    for (size_t i = 0; i < nbuiltin && count < ARRAY_LEN(known); i++)
        known[count++] = all[i].name;
    for (size_t i = 0; i < n && count < ARRAY_LEN(known); i++)
        if (!template_name_is_builtin(rows[i].name))
            known[count++] = rows[i].name;
    suggest_init(&near, name);
    for (size_t i = 0; i < count; i++) {
        suggest_offer(&near, known[i]);
        buf_addf(&names, "%s%s", i == 0 ? "" : i + 1 == count ? " or " : ", ", known[i]);
    }
    if (near.best)
        err_set(err, ERR_MISSING, "template '%.63s': does not exist; did you mean %s?", name, near.best);
    else
        err_set(err, ERR_MISSING, "template '%.63s': does not exist; use %s", name, names.data);
    err_sanitize(err);
}

static void template_on_names(void *arg, const struct err *err, const struct store_template *rows, size_t n,
                              const char *next UNUSED)
{
    struct template_lookup *l = arg;
    struct err why = { 0 };

    template_unknown_error(l->name, rows, err ? 0 : n, &why);
    template_lookup_answer(l, &why, NULL);
}

static void template_on_row(void *arg, const struct err *err, const struct store_template *row)
{
    struct template_lookup *l = arg;
    struct store_template made;

    if (!err || err->id != ERR_MISSING) {
        template_lookup_answer(l, err, row);
    } else if (!l->builtin) {
        store_template_list(l->store, &(struct store_list){ .limit = TEMPLATE_NAMES_SHOWN }, template_on_names, l);
    } else {
        template_builtin_row(l->builtin, &made);
        template_lookup_answer(l, NULL, &made);
        free(made.spec_json);
    }
}

void template_get(struct store *st, const char *name, store_template_fn *done, void *arg)
{
    struct template_lookup *l = mem_new(struct template_lookup);

    *l = (struct template_lookup){ st, template_builtin_find(name), str_dup(name), done, arg };
    store_template_get(st, name, template_on_row, l);
}
