/* Every value is checked when it is set, from every source, so each value in a struct conf fits the
 * table. The names of flags and variables are derived from the names in the file; there is no
 * second list that could differ. */
#include "main/conf/conf.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "core/base/suggest.h"
#include "main/conf/conf_file.h"

#include <assert.h>

static const struct setting_info setting_infos[SETTING_COUNT] = {
#define SETTING(id, name, kind, def, least, most, choices, help) \
    [SETTING_##id] = { name, SETTING_##kind, def, least, most, choices, help },
#include "main/conf/settings.def"
#undef SETTING
};

const struct setting_info *setting_info(enum conf_setting s)
{
    return &setting_infos[s];
}

char *setting_variable(enum conf_setting s)
{
    return text_respell_name("COVE_", setting_infos[s].name, '_', true);
}

char *setting_flag(enum conf_setting s)
{
    return text_respell_name("--", setting_infos[s].name, '-', false);
}

/* --- values --- */

static void conf_value_done(struct conf_value *v)
{
    for (size_t i = 0; v->list && v->list[i]; i++)
        free(v->list[i]);
    free(v->list);
    free(v->text);
    *v = (struct conf_value){ 0 };
}

static bool conf_read_choice(const char *choices, const char *text, uint64_t *ret)
{
    size_t len = strlen(text);

    *ret = 0;
    for (const char *p = choices; *p; ++*ret) {
        size_t n = strcspn(p, "|");

        if (n == len && strncmp(p, text, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

/* "a, b": blanks around an element are removed, and empty elements are dropped. */
static char **conf_split_list(const char *text)
{
    char **list = NULL;
    size_t n = 0;

    list = mem_resize(NULL, strlen(text) + 2, sizeof(*list)); /* more than there can be elements */
    while (*text) {
        text += strspn(text, ", ");
        size_t len = strcspn(text, ",");
        while (len && text[len - 1] == ' ')
            len--;
        if (len)
            list[n++] = str_dup_n(text, len);
        text += strcspn(text, ",");
    }
    list[n] = NULL;
    return list;
}

static int conf_check_range(const struct setting_info *info, uint64_t n, struct err *err)
{
    char least[32], most[32];

    if (n >= info->least && n <= info->most)
        return 0;
    if (info->kind == SETTING_BYTES)
        return err_set(err, ERR_CONF_VALUE, "%s must be from %s to %s", info->name, str_bytes(info->least, least),
                       str_bytes(info->most, most));
    if (info->kind == SETTING_TIME)
        return err_set(err, ERR_CONF_VALUE, "%s must be from %s to %s", info->name, str_ms(info->least, least),
                       str_ms(info->most, most));
    return err_set(err, ERR_CONF_VALUE, "%s must be from %" PRIu64 " to %" PRIu64, info->name, info->least, info->most);
}

static int conf_read_number(const struct setting_info *info, const char *text, uint64_t *ret, struct err *err)
{
    static const char *const forms[] = { [SETTING_BYTES] = "a size, for example 256M",
                                         [SETTING_TIME] = "a time with its unit, for example 30s",
                                         [SETTING_NUMBER] = "a number" };
    bool ok = info->kind == SETTING_BYTES  ? str_to_bytes(text, ret)
              : info->kind == SETTING_TIME ? str_to_ms(text, ret)
                                           : str_to_u64(text, UINT64_MAX, ret);

    if (!ok)
        return err_set(err, ERR_CONF_VALUE, "%s: '%.60s' is not %s", info->name, text, forms[info->kind]);
    return conf_check_range(info, *ret, err);
}

static int conf_set_value(struct conf *c, enum conf_setting s, const char *text, enum conf_source from, uint32_t line,
                          struct err *err)
{
    const struct setting_info *info = &setting_infos[s];
    struct conf_value v = { .source = from, .line = line };

    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_CONF_VALUE, "%s: a value must be one line without control characters", info->name);
    switch (info->kind) {
    case SETTING_BYTES:
    case SETTING_TIME:
    case SETTING_NUMBER:
        if (conf_read_number(info, text, &v.number, err) < 0)
            return -1;
        break;
    case SETTING_SWITCH:
        if (!conf_read_choice("false|true", text, &v.number))
            return err_set(err, ERR_CONF_VALUE, "%s: '%.60s' is neither true nor false", info->name, text);
        break;
    case SETTING_CHOICE:
        if (!conf_read_choice(info->choices, text, &v.number))
            return err_set(err, ERR_CONF_VALUE, "%s: '%.60s' is not one of %s", info->name, text, info->choices);
        break;
    case SETTING_LIST:
        v.list = conf_split_list(text);
        break;
    case SETTING_TEXT:
        break;
    }
    v.text = str_dup(text);
    conf_value_done(&c->v[s]);
    c->v[s] = v;
    return 0;
}

int conf_set(struct conf *c, enum conf_setting s, const char *text, uint32_t line, struct err *err)
{
    return conf_set_value(c, s, text, CONF_IN_FILE, line, err);
}

void conf_init(struct conf *c)
{
    struct err err = { 0 };

    *c = (struct conf){ 0 };
    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        int bad = conf_set_value(c, (enum conf_setting)s, setting_infos[s].def, CONF_DEFAULT, 0, &err);
        assert(!bad);
    }
}

void conf_done(struct conf *c)
{
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        conf_value_done(&c->v[s]);
    free(take_ptr(&c->file));
}

/* --- variables and flags --- */

/* Variables of other programs of cove; a new variable must be added here. */
static bool conf_is_other_variable(const char *name)
{
    static const char *const known[] = { "COVE_URL",     "COVE_API_KEY", "COVE_CACERT",
                                         "COVE_LIBEXEC", "COVE_FLOOR",   "COVE_STATE" };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_eq(name, known[i]))
            return true;
    return false;
}

static int conf_read_variable(struct conf *c, const char *name, const char *value, struct err *err)
{
    struct suggest near;
    char *variables[SETTING_COUNT];
    int rc = 1;

    suggest_init(&near, name);
    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        variables[s] = setting_variable((enum conf_setting)s);
        if (str_eq(name, variables[s]))
            rc = conf_set_value(c, (enum conf_setting)s, value, CONF_VARIABLE, 0, err);
        suggest_offer(&near, variables[s]);
    }
    if (rc < 0)
        err_wrap(err, "variable %.60s", name);
    else if (rc == 1 && near.best && !conf_is_other_variable(name))
        rc = err_set(err, ERR_CONF_KEY, "the variable %.60s is not a setting; did you mean %s?", name, near.best);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        free(variables[s]);
    return rc < 0 ? -1 : 0;
}

int conf_read_environment(struct conf *c, char *const *env, struct err *err)
{
    for (; *env; env++) {
        const char *equals = strchr(*env, '=');

        if (!equals || !str_starts(*env, "COVE_"))
            continue;
        auto_free char *name = str_dup_n(*env, (size_t)(equals - *env));
        if (conf_read_variable(c, name, equals + 1, err) < 0)
            return -1;
    }
    return 0;
}

int conf_read_flag(struct conf *c, const char *flag, const char *value, struct err *err)
{
    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        auto_free char *mine = setting_flag((enum conf_setting)s);

        if (!str_eq(mine, flag))
            continue;
        if (!value)
            return err_set(err, ERR_USAGE, "%s needs a value", flag);
        if (conf_set_value(c, (enum conf_setting)s, value, CONF_FLAG, 0, err) < 0)
            return err_wrap(err, "%s", flag);
        return 0;
    }
    return 1;
}

/* --- access --- */

const char *conf_text(const struct conf *c, enum conf_setting s)
{
    return c->v[s].text;
}

uint64_t conf_number(const struct conf *c, enum conf_setting s)
{
    return c->v[s].number;
}

bool conf_is_on(const struct conf *c, enum conf_setting s)
{
    return c->v[s].number != 0;
}

const char *const *conf_list(const struct conf *c, enum conf_setting s)
{
    return (const char *const *)c->v[s].list;
}

/* --- output for users --- */

static void conf_add_source(const struct conf *c, enum conf_setting s, struct buf *out)
{
    const struct conf_value *v = &c->v[s];
    auto_free char *name = v->source == CONF_VARIABLE ? setting_variable(s)
                           : v->source == CONF_FLAG   ? setting_flag(s)
                                                      : NULL;

    if (v->source == CONF_DEFAULT)
        buf_adds(out, "default");
    else if (v->source == CONF_IN_FILE)
        buf_addf(out, "%s:%" PRIu32, c->file ? c->file : "file", v->line);
    else
        buf_adds(out, name);
}

static void conf_add_value(const struct conf *c, enum conf_setting s, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 0); /* every JSON string is also a YAML string */
    if (setting_infos[s].kind == SETTING_LIST) {
        jsonw_array(&w);
        for (size_t i = 0; c->v[s].list[i]; i++)
            jsonw_str(&w, c->v[s].list[i]);
        jsonw_end_array(&w);
    } else if (setting_infos[s].kind == SETTING_TEXT) {
        jsonw_str(&w, c->v[s].text);
    } else {
        buf_adds(out, c->v[s].text);
    }
}

void conf_set_effective_text(struct conf *c, enum conf_setting s, const char *text)
{
    free(c->v[s].text);
    c->v[s].text = str_dup(text);
}

void conf_print(const struct conf *c, struct buf *out)
{
    size_t group = 0;
    const char *last = "";

    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        const char *name = setting_infos[s].name;
        const char *dot = strchr(name, '.');
        size_t n = dot ? (size_t)(dot - name) : 0;

        if (n && (n != group || strncmp(last, name, n) != 0))
            buf_addf(out, "%.*s:\n", (int)n, name);
        group = n;
        last = name;
        size_t from = out->len;
        buf_addf(out, "%s%s: ", n ? "  " : "", dot ? dot + 1 : name);
        conf_add_value(c, (enum conf_setting)s, out);
        buf_addf(out, "%*s # ", (int)(out->len - from < 44 ? 44 - (out->len - from) : 0), "");
        conf_add_source(c, (enum conf_setting)s, out);
        buf_adds(out, "\n");
    }
}

void conf_json(const struct conf *c, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 2);
    jsonw_object(&w);
    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        auto_buf source = { 0 };

        conf_add_source(c, (enum conf_setting)s, &source);
        jsonw_key(&w, setting_infos[s].name);
        jsonw_object(&w);
        jsonw_kstr(&w, "value", c->v[s].text);
        jsonw_kstr(&w, "from", source.data);
        jsonw_end_object(&w);
    }
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}

#define HELP_WIDTH 80

/* Flag names are too long for two columns in HELP_WIDTH. */
void conf_help(struct buf *out)
{
    static const char *const values[] = { "TEXT", "A,B", "SIZE", "TIME", "N", "true|false", NULL };

    for (unsigned s = 0; s < SETTING_COUNT; s++) {
        auto_free char *flag = setting_flag((enum conf_setting)s);
        const struct setting_info *info = &setting_infos[s];

        auto_free char *text = str_printf("%s%s%s%s", info->help, *info->def ? " [" : "", info->def,
                                          *info->def ? "]" : "");
        buf_addf(out, "  %s %s\n      ", flag, info->choices ? info->choices : values[info->kind]);
        text_wrap(out, text, 6, 6, HELP_WIDTH);
    }
}
