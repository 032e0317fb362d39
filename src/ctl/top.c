/* cove top: the living sandboxes of a server, and what they use. A share of the processor is the difference of two
 * looks, so the first table comes after the second look. On a terminal the table is drawn anew with each look;
 * elsewhere, or with --once, it is printed once. */
#include "ctl/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define AUTO_JSON __attribute__((cleanup(json_decrefp))) json_t
#define FIRST_MS 500u /* between the first two looks */

enum sort { BY_CPU, BY_MEMORY, BY_PIDS, BY_AGE };

struct line {
    const json_t *now;
    double percent; /* of one processor; below 0: not known */
    enum sort sort;
};

static int take(struct ctl *c, json_t **ret, struct err *err)
{
    return client_json(c->client, "GET", "/v1/usage/live", NULL, ret, err);
}

static const json_t *find(const json_t *answer, const char *id)
{
    const json_t *sandboxes = json_object_get(answer, "sandboxes"), *s;
    size_t i;

    json_array_foreach(sandboxes, i, s) if (str_eq(ctl_text(s, "id"), id)) return s;
    return NULL;
}

static double percent(const json_t *before, const json_t *now, const json_t *s)
{
    const json_t *old = find(before, ctl_text(s, "id"));
    uint64_t from, to;

    if (!old || !json_object_get(s, "cpuUs") || !json_object_get(old, "cpuUs") ||
        !clock_from_rfc3339(ctl_text(before, "at"), &from) || !clock_from_rfc3339(ctl_text(now, "at"), &to) ||
        to <= from || ctl_number(s, "cpuUs") < ctl_number(old, "cpuUs"))
        return -1;
    return (double)(ctl_number(s, "cpuUs") - ctl_number(old, "cpuUs")) / (double)(to - from) / 10;
}

static double weight(const struct line *l)
{
    switch (l->sort) {
    case BY_MEMORY:
        return (double)ctl_number(l->now, "memoryBytes");
    case BY_PIDS:
        return (double)ctl_number(l->now, "pids");
    case BY_AGE:
        return 0; /* as they come: the oldest first */
    default:
        return l->percent;
    }
}

static int heaviest(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    double d = weight(y) - weight(x);

    if (d != 0)
        return d > 0 ? 1 : -1;
    return strcmp(ctl_text(x->now, "createdAt"), ctl_text(y->now, "createdAt"));
}

static struct line *lines(const json_t *before, const json_t *now, enum sort sort, size_t *ret_n)
{
    const json_t *sandboxes = json_object_get(now, "sandboxes"), *s;
    struct line *all = mem_new_array(struct line, json_array_size(sandboxes) + 1);
    size_t i;

    json_array_foreach(sandboxes, i, s) all[i] = (struct line){ s, percent(before, now, s), sort };
    *ret_n = json_array_size(sandboxes);
    if (*ret_n > 1)
        qsort(all, *ret_n, sizeof(*all), heaviest);
    return all;
}

static int print_table(const struct line *all, size_t n, bool terminal)
{
    uint64_t now_ms = clock_real_ns() / NS_PER_MS;
    struct ctl_table t = { 0 };

    if (terminal)
        (void)fputs("\033[H\033[2J", stdout);
    ctl_row(&t, "sandbox", "state", "cpu", "memory", "of", "pids", "executions", "created");
    for (size_t i = 0; i < n; i++) {
        const json_t *s = all[i].now;
        char cpu[24] = "-", memory[32], of[32], pids[24], executions[24], age[CTL_AGE];

        if (all[i].percent >= 0)
            snprintf(cpu, sizeof(cpu), "%.1f%%", all[i].percent);
        snprintf(pids, sizeof(pids), "%" PRIu64, ctl_number(s, "pids"));
        snprintf(executions, sizeof(executions), "%" PRIu64, ctl_number(s, "executions"));
        ctl_row(&t, ctl_text(s, "id"), ctl_text(s, "state"), cpu, str_bytes(ctl_number(s, "memoryBytes"), memory),
                str_bytes(ctl_number(json_object_get(s, "limits"), "memoryBytes"), of), pids, executions,
                ctl_age(ctl_text(s, "createdAt"), now_ms, age));
    }
    fflush(stdout);
    return ctl_print_table(&t);
}

static int print_json(const struct line *all, size_t n, const json_t *now)
{
    AUTO_JSON *out = json_object();
    json_t *list = json_array();

    json_object_set_new(out, "at", json_string(ctl_text(now, "at")));
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_copy((json_t *)all[i].now);

        if (all[i].percent >= 0)
            json_object_set_new(s, "cpuPercent", json_real((double)(long)(all[i].percent * 10 + 0.5) / 10));
        json_array_append_new(list, s);
    }
    json_object_set_new(out, "sandboxes", list);
    int rc = ctl_print_json(out);
    fflush(stdout);
    return rc;
}

static void nap(uint64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 }, NULL);
}

static int read_flags(struct ctl *c, uint64_t *ret_ms, enum sort *ret_sort, struct err *err)
{
    static const char *const names[] = { "cpu", "memory", "pids", "age" };
    const struct arg *every = args_find(&c->args, OPT_INTERVAL), *sort = args_find(&c->args, OPT_SORT);
    size_t i = 0;

    *ret_ms = 2000;
    if (ctl_words(c, 0, 0, "top [FLAGS]", err) < 0)
        return -1;
    if (every && (!str_to_ms(every->value, ret_ms) || *ret_ms < 500 || *ret_ms > 3600000))
        return err_set(err, ERR_USAGE, "--interval %.40s: from 500ms to 1h", every->value);
    while (sort && i < ARRAY_LEN(names) && !str_eq(sort->value, names[i]))
        i++;
    if (i == ARRAY_LEN(names))
        return err_set(err, ERR_USAGE, "--sort %.40s: it is cpu, memory, pids or age", sort->value);
    *ret_sort = (enum sort)i;
    return 0;
}

int ctl_top(struct ctl *c, struct err *err)
{
    bool once = args_find(&c->args, OPT_ONCE) || (!c->json && !isatty(STDOUT_FILENO));
    AUTO_JSON *before = NULL;
    enum sort sort = BY_CPU;
    uint64_t every;
    int rc = 0;

    if (read_flags(c, &every, &sort, err) < 0 || take(c, &before, err) < 0)
        return -1;
    for (uint64_t wait = FIRST_MS; rc == 0; wait = every) {
        json_t *now = NULL;
        size_t n;

        nap(wait);
        if (take(c, &now, err) < 0)
            return -1;
        struct line *all = lines(before, now, sort, &n);
        rc = c->json ? print_json(all, n, now) : print_table(all, n, !once);
        free(all);
        json_decref(before);
        before = now;
        if (once)
            break;
    }
    return rc;
}
