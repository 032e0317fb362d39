/* Built-in templates are not in the store: a new version of the program brings its own, and a
 * stored template with the same name overrides the built-in one. */
#include "service/templates.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"

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

int template_not_found_error(struct err *err, const char *name)
{
    size_t n;
    const struct template_builtin *all = template_builtin_list(&n);
    auto_buf built = { 0 };

    for (size_t i = 0; i < n; i++)
        buf_addf(&built, "%s%s", i == 0 ? "" : i + 1 == n ? " and " : ", ", all[i].name);
    return err_set(err, ERR_MISSING,
                   "template: '%.63s' does not exist; %s are built in, create others with PUT /v1/templates/{name}",
                   name, built.data);
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
    const struct template_builtin *builtin;
    store_template_fn *done;
    void *arg;
};

static void template_on_row(void *arg, const struct err *err, const struct store_template *row)
{
    struct template_lookup l = *(struct template_lookup *)arg;
    struct store_template made;

    free(arg);
    if (!err || err->id != ERR_MISSING || !l.builtin) {
        l.done(l.arg, err, row);
        return;
    }
    template_builtin_row(l.builtin, &made);
    l.done(l.arg, NULL, &made);
    free(made.spec_json);
}

void template_get(struct store *st, const char *name, store_template_fn *done, void *arg)
{
    struct template_lookup *l = mem_new(struct template_lookup);

    *l = (struct template_lookup){ template_builtin_find(name), done, arg };
    store_template_get(st, name, template_on_row, l);
}
