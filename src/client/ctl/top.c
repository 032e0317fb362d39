/* cove top: shows the live sandboxes of a server and their usage. Processor usage is the difference
 * of two samples, so the first table appears after the second sample. On a terminal the table is
 * redrawn after each sample until the key q; otherwise, or with --once, it is printed once. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include "client/cli/term.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_MS 500u      /* between the first two samples */
#define KEY_INTERRUPT 0x03 /* Ctrl-C */

enum ctl_top_sort { CTL_TOP_BY_CPU, CTL_TOP_BY_MEMORY, CTL_TOP_BY_PIDS, CTL_TOP_BY_AGE };

struct ctl_top_line {
    const json_t *now;
    double percent; /* of one processor; below 0: unknown */
    enum ctl_top_sort sort;
};

static int ctl_top_request_usage(struct ctl *c, json_t **ret, struct err *err)
{
    return client_json(c->client, "GET", "/v1/usage/live", NULL, ret, err);
}

static const json_t *ctl_top_find_sandbox(const json_t *answer, const char *id)
{
    const json_t *sandboxes = json_object_get(answer, "sandboxes"), *s;
    size_t i;

    json_array_foreach(sandboxes, i, s) if (str_eq(ctl_field_text(s, "id"), id)) return s;
    return NULL;
}

static double ctl_top_cpu_percent(const json_t *before, const json_t *now, const json_t *s)
{
    const json_t *old = ctl_top_find_sandbox(before, ctl_field_text(s, "id"));
    uint64_t from, to;

    if (!old || !json_object_get(s, "cpuMs") || !json_object_get(old, "cpuMs") ||
        !clock_from_rfc3339(ctl_field_text(before, "at"), &from) ||
        !clock_from_rfc3339(ctl_field_text(now, "at"), &to) || to <= from ||
        json_number_value(json_object_get(s, "cpuMs")) < json_number_value(json_object_get(old, "cpuMs")))
        return -1;
    return (json_number_value(json_object_get(s, "cpuMs")) - json_number_value(json_object_get(old, "cpuMs"))) /
           (double)(to - from) * 100;
}

static double ctl_top_sort_key(const struct ctl_top_line *l)
{
    switch (l->sort) {
    case CTL_TOP_BY_MEMORY:
        return (double)ctl_field_number(l->now, "memoryBytes");
    case CTL_TOP_BY_PIDS:
        return (double)ctl_field_number(l->now, "pids");
    case CTL_TOP_BY_AGE:
        return 0; /* order of the server: oldest first */
    default:
        return l->percent;
    }
}

static int ctl_top_compare(const void *a, const void *b)
{
    const struct ctl_top_line *x = a, *y = b;
    double d = ctl_top_sort_key(y) - ctl_top_sort_key(x);

    if (d != 0)
        return d > 0 ? 1 : -1;
    return strcmp(ctl_field_text(x->now, "createdAt"), ctl_field_text(y->now, "createdAt"));
}

static struct ctl_top_line *ctl_top_make_lines(const json_t *before, const json_t *now, enum ctl_top_sort sort,
                                               size_t *ret_n)
{
    const json_t *sandboxes = json_object_get(now, "sandboxes"), *s;
    struct ctl_top_line *all = mem_new_array(struct ctl_top_line, json_array_size(sandboxes) + 1);
    size_t i;

    json_array_foreach(sandboxes, i, s) all[i] = (struct ctl_top_line){ s, ctl_top_cpu_percent(before, now, s), sort };
    *ret_n = json_array_size(sandboxes);
    if (*ret_n > 1)
        qsort(all, *ret_n, sizeof(*all), ctl_top_compare);
    return all;
}

static int ctl_top_print_table(const struct ctl_top_line *all, size_t n, bool terminal)
{
    uint64_t now_ms = clock_real_ms();
    struct ctl_table t = { 0 };

    if (terminal)
        (void)fputs("\033[H\033[2J", stdout);
    ctl_table_row(&t, "sandbox", "state", "cpu", "memory", "limit", "pids", "executions", "created");
    for (size_t i = 0; i < n; i++) {
        const json_t *s = all[i].now;
        char cpu[24] = "-", memory[32], of[32], pids[24], executions[24], age[CTL_AGE];

        if (all[i].percent >= 0)
            snprintf(cpu, sizeof(cpu), "%.1f%%", all[i].percent);
        snprintf(pids, sizeof(pids), "%" PRIu64, ctl_field_number(s, "pids"));
        snprintf(executions, sizeof(executions), "%" PRIu64, ctl_field_number(s, "executions"));
        ctl_table_row(&t, ctl_field_text(s, "id"), ctl_field_text(s, "state"), cpu,
                      str_bytes(ctl_field_number(s, "memoryBytes"), memory),
                      str_bytes(ctl_field_number(json_object_get(s, "limits"), "memoryBytes"), of), pids, executions,
                      ctl_age(ctl_field_text(s, "createdAt"), now_ms, age));
    }
    fflush(stdout);
    return ctl_table_print(&t);
}

static int ctl_top_print_json(const struct ctl_top_line *all, size_t n, const json_t *now)
{
    AUTO_JSON *out = json_object();
    json_t *list = json_array();

    json_object_set_new(out, "at", json_string(ctl_field_text(now, "at")));
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_copy((json_t *)all[i].now);

        if (all[i].percent >= 0)
            json_object_set_new(s, "cpuPercent", json_real((double)(long)(all[i].percent * 10 + 0.5) / 10));
        json_array_append_new(list, s);
    }
    json_object_set_new(out, "sandboxes", list);
    auto_free char *text = ctl_json_text(out);
    ctl_printf("%s", text ? text : "null");
    fflush(stdout);
    return 0;
}

/* Waits for the time or a key. Returns -1 to continue, otherwise the exit status: q quits, and
 * Ctrl-C is a key, because the terminal does not make signals. */
static int ctl_top_wait_ms(uint64_t ms, bool keys)
{
    struct pollfd in = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
    char key;

    if (poll(&in, 1, (int)ms) <= 0)
        return -1;
    if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q')
        return 0;
    return key == KEY_INTERRUPT ? 128 + SIGINT : -1;
}

static int ctl_top_read_flags(struct ctl *c, uint64_t *ret_ms, enum ctl_top_sort *ret_sort, struct err *err)
{
    static const char *const names[] = { "cpu", "memory", "pids", "age" };
    const struct arg *every = args_find(&c->args, OPT_INTERVAL), *sort = args_find(&c->args, OPT_SORT);
    size_t i = 0;

    *ret_ms = 2000;
    if (ctl_require_args(c, 0, 0, "top [FLAGS]", err) < 0)
        return -1;
    if (every && (!str_to_ms(every->value, ret_ms) || *ret_ms < 500 || *ret_ms > 3600000))
        return err_set(err, ERR_USAGE, "--interval %.40s: must be from 500ms to 1h", every->value);
    while (sort && i < ARRAY_LEN(names) && !str_eq(sort->value, names[i]))
        i++;
    if (i == ARRAY_LEN(names))
        return err_set(err, ERR_USAGE, "--sort %.40s: must be cpu, memory, pids or age", sort->value);
    *ret_sort = (enum ctl_top_sort)i;
    return 0;
}

int ctl_top(struct ctl *c, struct err *err)
{
    bool once = args_find(&c->args, OPT_ONCE) || (!c->json && !isatty(STDOUT_FILENO));
    bool keys = !once && !c->json && isatty(STDIN_FILENO);
    AUTO_JSON *before = NULL;
    enum ctl_top_sort sort = CTL_TOP_BY_CPU;
    uint64_t every;
    int rc = 0;

    if (ctl_top_read_flags(c, &every, &sort, err) < 0 || ctl_top_request_usage(c, &before, err) < 0 ||
        (keys && term_keys(STDIN_FILENO, err) < 0))
        return -1;
    for (uint64_t wait = FIRST_MS; rc == 0; wait = every) {
        json_t *now = NULL;
        size_t n;

        int status = ctl_top_wait_ms(wait, keys);
        if (status >= 0)
            return status; /* the terminal is restored at exit */
        if (ctl_top_request_usage(c, &now, err) < 0)
            return -1;
        struct ctl_top_line *all = ctl_top_make_lines(before, now, sort, &n);
        rc = c->json ? ctl_top_print_json(all, n, now) : ctl_top_print_table(all, n, !once);
        free(all);
        json_decref(before);
        before = now;
        if (once)
            break;
    }
    return rc;
}
