/* Shared by the verbs: reads arguments and flags, prints tables and JSON. */
#include "client/ctl/ctl_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "remote/fetch/fetch.h"

#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

int ctl_require_args(const struct ctl *c, int min, int max, const char *usage, struct err *err)
{
    if (c->args.nrest < min)
        return err_set(err, ERR_USAGE, "missing argument; usage: cove %s", usage);
    if (c->args.nrest > max)
        return err_set(err, ERR_USAGE, "unexpected argument '%.60s'; usage: cove %s", c->args.rest[max], usage);
    return 0;
}

int ctl_run_subcommand(struct ctl *c, const struct ctl_subcommand *table, const char *noun, const char *word,
                       struct err *err)
{
    for (; table->word; table++)
        if (str_eq(word, table->word))
            return table->fn(c, err);
    return err_set(err, ERR_BUG, "'%s %s' is not implemented", noun, word);
}

int ctl_remove_each(struct ctl *c, const char *format, const char *usage, struct err *err)
{
    if (ctl_require_args(c, 1, 1000, usage, err) < 0)
        return -1;
    for (int i = 0; i < c->args.nrest; i++) {
        auto_free char *path = ctl_api_path(format, c->args.rest[i]);

        if (client_json(c->client, "DELETE", path, NULL, NULL, err) < 0)
            return -1;
        if (!c->json && !c->quiet)
            ctl_printf("%s", c->args.rest[i]);
    }
    return 0;
}

int ctl_require_server(const struct ctl *c, struct err *err)
{
    if (c->client)
        return 0;
    *err = c->no_client;
    return -1;
}

static void ctl_on_interrupt(void *arg, int signo)
{
    struct ctl *c = arg;

    if (c->signal)
        _exit(128 + signo);
    c->signal = signo;
    if (c->client)
        client_interrupt(c->client);
}

int ctl_catch_interrupt(struct ctl *c, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return ev_signals(c->ev, &set, ctl_on_interrupt, c, err);
}

int ctl_check_interrupt(const struct ctl *c, struct err *err)
{
    return c->signal ? err_set(err, ERR_CUT_OFF, "interrupted") : 0;
}

int ctl_confirm(const struct ctl *c, const char *question, struct err *err)
{
    char answer[16] = "";

    if (args_find(&c->args, OPT_YES))
        return 0;
    if (!isatty(STDIN_FILENO))
        return err_set(err, ERR_USAGE, "%s: standard input is not a terminal; add --yes", question);
    fprintf(stderr, "%s? [y/N] ", question);
    fflush(stderr);
    if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return 0;
    return err_set(err, ERR_USAGE, "%s: not confirmed; nothing was changed", question);
}

char *ctl_api_path(const char *form, ...)
{
    auto_buf out = { 0 };
    va_list ap;

    va_start(ap, form);
    for (const char *p = form; *p; p++) {
        if (p[0] == '%' && p[1] == 's') {
            auto_free char *word = fetch_escape(va_arg(ap, const char *));

            buf_adds(&out, word);
            p++;
        } else {
            buf_add(&out, p, 1);
        }
    }
    va_end(ap);
    return str_dup(out.data ? out.data : "");
}

/* Jansson prints non-ASCII characters unescaped, and a terminal interprets some of them as control
 * characters. It also prints a double with two digits more than its precision. */
#define JSON_FORM (JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15) | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0))

char *ctl_json_text(const json_t *v)
{
    return json_dumps(v, JSON_COMPACT | JSON_FORM);
}

int ctl_print_json(const json_t *answer)
{
    auto_buf out = { 0 };
    int indent = report_json_indent();
    auto_free char *text = json_dumps(answer, JSON_FORM | (indent ? JSON_INDENT((size_t)indent) : JSON_COMPACT));

    buf_adds(&out, text ? text : "null");
    buf_adds(&out, "\n");
    return report_text(&out);
}

void ctl_print_line(char *text)
{
    str_strip_control_chars(text);
    printf("%s\n", text);
    free(text);
}

const char *ctl_field_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

uint64_t ctl_field_number(const json_t *object, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(object, key));

    return v > 0 ? (uint64_t)v : 0;
}

void ctl_table_add_row(struct ctl_table *t, const char *const *cells)
{
    size_t n = 0;

    for (; cells[n]; n++) {
        t->cells = mem_resize(t->cells, t->n + 1, sizeof(*t->cells));
        t->cells[t->n] = str_dup(cells[n]);
        str_strip_control_chars(t->cells[t->n++]);
    }
    t->columns = n;
}

void ctl_table_free(struct ctl_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct ctl_table){ 0 };
}

int ctl_table_print(struct ctl_table *t)
{
    size_t *width = mem_new_array(size_t, t->columns + 1);
    auto_buf out = { 0 };

    memset(width, 0, sizeof(*width) * (t->columns + 1));
    for (size_t i = 0; i < t->n; i++)
        if (strlen(t->cells[i]) > width[i % t->columns])
            width[i % t->columns] = strlen(t->cells[i]);
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % t->columns;

        if (i < t->columns)
            for (char *p = t->cells[i]; *p; p++)
                *p = (char)toupper((unsigned char)*p);
        if (column + 1 == t->columns)
            buf_addf(&out, "%s\n", t->cells[i]);
        else
            buf_addf(&out, "%-*s  ", (int)width[column], t->cells[i]);
    }
    ctl_table_free(t);
    free(width);
    return report_text(&out);
}

int ctl_for_each_item(struct ctl *c, const char *path, void (*each)(void *arg, const json_t *item), void *arg,
                      struct err *err)
{
    auto_free char *cursor = NULL;

    do {
        auto_free char *escaped = fetch_escape(cursor ? cursor : "");
        auto_free char *page = str_printf("%s%climit=100%s%s", path, strchr(path, '?') ? '&' : '?',
                                          cursor ? "&cursor=" : "", cursor ? escaped : "");
        json_t *answer, *item;
        size_t i;

        if (client_json(c->client, "GET", page, NULL, &answer, err) < 0)
            return -1;
        json_array_foreach(json_object_get(answer, "items"), i, item) each(arg, item);
        free(cursor);
        cursor = *ctl_field_text(answer, "nextCursor") ? str_dup(ctl_field_text(answer, "nextCursor")) : NULL;
        json_decref(answer);
    } while (cursor);
    return 0;
}

/* --- flags --- */

int ctl_set_pairs(const struct ctl *c, int opt, bool from_env, json_t *body, const char *key, struct err *err)
{
    json_t *object = NULL;

    for (size_t i = 0; i < c->args.n; i++) {
        const char *text = c->args.items[i].value;

        if (c->args.items[i].opt->id != opt)
            continue;
        const char *eq = strchr(text, '=');
        auto_free char *name = str_dup_n(text, eq ? (size_t)(eq - text) : strlen(text));
        const char *value = eq ? eq + 1 : from_env ? getenv(name) : NULL;
        if (!value || !*name) {
            json_decref(object);
            return err_set(err, ERR_USAGE, "--%s '%.60s': %s", c->args.items[i].opt->name, text,
                           from_env && *name ? "not set in your environment; write NAME=VALUE, or export it first"
                                             : "must be NAME=VALUE");
        }
        if (!object)
            object = json_object();
        if (json_object_set_new(object, name, json_string(value)) < 0) {
            json_decref(object);
            return err_set(err, ERR_USAGE, "--%s %.60s: the value is not UTF-8", c->args.items[i].opt->name, name);
        }
    }
    if (object)
        json_object_set_new(body, key, object);
    return 0;
}

int ctl_set_limit(const struct ctl *c, enum limit l, json_t *body, const char *key, struct err *err)
{
    const struct arg *a = args_find(&c->args, OPT_LIMIT + (int)l);
    uint64_t v;

    if (!a)
        return 0;
    if (limit_parse_flag(l, a->value, &v, err) < 0)
        return err_wrap(err, "--%s %.40s", a->opt->name, a->value);
    json_object_set_new(body, key, json_integer((json_int_t)v));
    return 0;
}

int ctl_set_resources(const struct ctl *c, json_t *body, struct err *err)
{
    static const struct {
        enum limit limit;
        const char *key;
    } each[] = { { LIMIT_CPU, "cpuMillis" },
                 { LIMIT_MEMORY, "memoryBytes" },
                 { LIMIT_WORKSPACE, "storageBytes" },
                 { LIMIT_PIDS, "pids" } };
    json_t *given = json_object_get(body, "resources"), *r = given ? json_incref(given) : json_object();

    for (size_t i = 0; i < ARRAY_LEN(each); i++) {
        if (ctl_set_limit(c, each[i].limit, r, each[i].key, err) < 0) {
            json_decref(r);
            return -1;
        }
    }
    if (args_find(&c->args, OPT_PIN))
        json_object_set_new(r, "cpuPinning", json_true());
    if (json_object_size(r))
        json_object_set(body, "resources", r);
    json_decref(r);
    return 0;
}

int ctl_set_run_limits(const struct ctl *c, json_t *body, struct err *err)
{
    static const struct {
        enum limit limit;
        const char *key;
    } each[] = { { LIMIT_WALL, "timeoutMs" }, { LIMIT_CPU_TIME, "cpuTimeMs" }, { LIMIT_OUTPUT, "outputBytes" } };

    for (size_t i = 0; i < ARRAY_LEN(each); i++)
        if (ctl_set_limit(c, each[i].limit, body, each[i].key, err) < 0)
            return -1;
    return 0;
}

void ctl_set_text(const struct ctl *c, int opt, json_t *body, const char *key)
{
    const struct arg *a = args_find(&c->args, opt);

    if (a)
        json_object_set_new(body, key, json_string(a->value));
}

int ctl_set_spec(const struct ctl *c, json_t *body, struct err *err)
{
    ctl_set_text(c, OPT_RUNTIME, body, "runtime");
    ctl_set_text(c, OPT_LEVEL, body, "level");
    ctl_set_text(c, OPT_DRIVER, body, "driver");
    ctl_set_text(c, OPT_IDLE_ACTION, body, "idleAction");
    if (ctl_set_network(c, body, err) < 0 || ctl_set_resources(c, body, err) < 0 ||
        ctl_set_limit(c, LIMIT_WALL, body, "timeoutMs", err) < 0 ||
        ctl_set_limit(c, LIMIT_LIFETIME, body, "lifetimeMs", err) < 0 ||
        ctl_set_limit(c, LIMIT_IDLE, body, "idleTimeoutMs", err) < 0 ||
        ctl_set_pairs(c, OPT_ENV, true, body, "env", err) < 0)
        return -1;
    return ctl_set_pairs(c, OPT_METADATA, false, body, "metadata", err);
}
