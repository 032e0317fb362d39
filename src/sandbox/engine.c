/* The engine: the links of the drivers, and the handles of the sandboxes that live on them.
 *
 * on_lost of the engine is called once, after every sandbox_handle was notified and has read all
 * that its sandbox still sent. */
#include "sandbox/engine_internal.h"

#include "core/base/fd.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/drivers.h"

#include <sys/resource.h>

/* --- denials --- */

bool engine_has_no_new_denials(const struct sandbox_handle *b)
{
    return !b->link->denials_absent_why && b->is_monitored && !b->has_new_denials &&
           !b->link->ops->has_unread_denials(b->link);
}

/* --- requests without a handle --- */

/* Returns the link after those of the drivers below *i, each once; NULL: there is none. Begins with
 * *i = 0. */
static struct driver_link *engine_next_link(const struct engine *e, unsigned *i)
{
    while (*i < DRIVER_COUNT) {
        struct driver_link *l = e->links[(*i)++];
        unsigned k = 0;

        while (e->links[k] != l)
            k++;
        if (k + 1 == *i)
            return l;
    }
    return NULL;
}

/* A list that was requested of every link. */
struct engine_list {
    struct engine_list *next;
    struct engine *engine;
    unsigned unanswered;
    char (*ids)[ID_SIZE];
    size_t n;
    struct err err; /* the first failure; id 0: none */
    engine_list_fn *fn;
    void *arg;
};

static void engine_list_free(struct engine_list *list)
{
    list_remove(&list->engine->lists, list);
    free(list->ids);
    free(list);
}

static int engine_compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, ID_SIZE);
}

/* The first ENGINE_LIST_MAX ids of all links are among the first ENGINE_LIST_MAX of each, so a full
 * list makes no gap. */
static void engine_list_add(struct engine_list *list, const char (*ids)[ID_SIZE], size_t n)
{
    if (n == 0)
        return;
    list->ids = mem_resize(list->ids, list->n + n, sizeof(*list->ids));
    memcpy(list->ids + list->n, ids, n * sizeof(*ids));
    list->n += n;
    qsort(list->ids, list->n, sizeof(*list->ids), engine_compare_ids);
    list->n = min_size(list->n, ENGINE_LIST_MAX);
}

static void engine_on_list(struct driver_request *r, const char (*ids)[ID_SIZE], size_t n, const struct err *err)
{
    struct engine_list *list = r->then_arg;

    if (err && !list->err.id)
        list->err = *err;
    if (!err)
        engine_list_add(list, ids, n);
    if (--list->unanswered > 0)
        return;
    struct engine_list answer = *list;
    list->ids = NULL;
    engine_list_free(list); /* the callback may free the engine */
    if (answer.err.id)
        answer.fn(answer.arg, NULL, 0, &answer.err);
    else
        answer.fn(answer.arg, (const char(*)[ID_SIZE])answer.ids, answer.n, NULL);
    free(answer.ids);
}

void engine_list_sandboxes(struct engine *e, const char *after, engine_list_fn *fn, void *arg)
{
    struct engine_list *list = mem_new(struct engine_list);
    unsigned i = 0;

    _Static_assert(ENGINE_LIST_MAX == DRIVER_LIST_MAX, "a full list is known by its length");
    list->engine = e;
    list->fn = fn;
    list->arg = arg;
    list_push(&e->lists, list);
    for (struct driver_link *l; (l = engine_next_link(e, &i)); list->unanswered++) {
        struct driver_request *r = l->ops->list(l, after, engine_on_list, e);

        r->then_arg = list;
    }
}

/* Only its driver knows the sandbox; the others answer that there is none. */
void engine_destroy_sandbox(struct engine *e, const char *id)
{
    unsigned i = 0;

    if (!id_valid(id, "sb"))
        return;
    for (struct driver_link *l; (l = engine_next_link(e, &i));)
        l->ops->destroy(l, id, NULL, NULL);
    if (!engine_egress_absent_why(e))
        egress_link_unbind(&e->egress, id, NULL, NULL);
}

/* The monitor watches the jailer's sandboxes: one link has it. NULL: none. */
static struct driver_link *engine_monitored_link(const struct engine *e)
{
    unsigned i = 0;
    struct driver_link *l;

    do {
        l = engine_next_link(e, &i);
    } while (l && !l->ops->set_monitor);
    return l;
}

int engine_set_monitor(struct engine *e, int monitor_fd, struct err *err)
{
    struct driver_link *l = engine_monitored_link(e);

    if (l)
        return l->ops->set_monitor(l, monitor_fd, err);
    fd_close(&monitor_fd);
    return err_set(err, ERR_BUG, "no driver has a monitor");
}

void engine_connect_monitor(struct engine *e)
{
    struct driver_link *l = engine_monitored_link(e);

    if (l)
        l->ops->connect_monitor(l);
}

int engine_set_egress(struct engine *e, int egress_fd, struct err *err)
{
    return egress_link_set(&e->egress, egress_fd, err);
}

void engine_connect_egress(struct engine *e, const char *socket)
{
    egress_link_connect(&e->egress, socket);
}

const char *engine_egress_absent_why(const struct engine *e)
{
    return egress_link_absent_why(&e->egress);
}

/* --- sandbox handles --- */

static struct sandbox_handle **engine_handle_bucket(struct engine *e, const char *id)
{
    return &e->handles[hash_str(HASH_INIT, id) % SANDBOX_HANDLE_BUCKETS];
}

struct sandbox_handle *engine_find_handle(struct engine *e, const char *id)
{
    struct sandbox_handle *b = *engine_handle_bucket(e, id);

    while (b && strcmp(b->id, id) != 0)
        b = b->next;
    return b;
}

void engine_add_handle(struct engine *e, struct sandbox_handle *b)
{
    struct sandbox_handle **p = engine_handle_bucket(e, b->id);

    b->next = *p;
    *p = b;
    e->nhandles++;
}

void engine_remove_handle(struct engine *e, struct sandbox_handle *b)
{
    struct sandbox_handle **p = engine_handle_bucket(e, b->id);

    while (*p && *p != b)
        p = &(*p)->next;
    if (!*p)
        return;
    *p = b->next;
    e->nhandles--;
    if (b->link->ops->forget_denials)
        b->link->ops->forget_denials(b->link, b->id);
}

/* --- events of a link --- */

static void engine_on_exit(void *arg, const char *id, int status)
{
    struct sandbox_handle *b = engine_find_handle(arg, id);

    if (b)
        b->init_status = status; /* the control stream ends later, after its last frames */
}

static void engine_on_oom(void *arg, const char *id)
{
    struct sandbox_handle *b = engine_find_handle(arg, id);

    if (b)
        sandbox_handle_on_oom(b);
}

static void engine_on_denial_notice(void *arg, const char *id, bool watched, bool denied)
{
    struct sandbox_handle *b = engine_find_handle(arg, id);

    if (!b)
        return;
    b->is_monitored |= watched;
    b->has_new_denials |= denied;
}

static void engine_on_denials_lost(void *arg, struct driver_link *l)
{
    struct engine *e = arg;

    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (b->link == l)
                denials_monitor_lost(b);
}

static bool engine_has_unfinished_handles(const struct engine *e, const struct driver_link *l)
{
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (const struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (b->link == l && sandbox_handle_is_unfinished(b))
                return true;
    return false;
}

static void engine_on_link_lost(void *arg, struct driver_link *l)
{
    struct engine *e = arg;

    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (b->link == l)
                sandbox_handle_link_lost(b, &l->why);
    if (e->lost_reported || engine_has_unfinished_handles(e, l))
        return;
    e->lost_reported = true;
    if (e->ops && e->ops->on_lost)
        e->ops->on_lost(e->arg, &l->why);
}

static void engine_on_lost_timer(void *arg)
{
    struct engine *e = arg;
    unsigned i = 0;
    struct driver_link *l;

    do {
        l = engine_next_link(e, &i);
    } while (l && (!l->lost || engine_has_unfinished_handles(e, l)));
    driver_callback_begin();
    if (l)
        engine_on_link_lost(e, l);
    driver_callback_end();
}

void engine_maybe_report_lost(struct engine *e)
{
    bool lost = false;
    unsigned i = 0;

    for (const struct driver_link *l; (l = engine_next_link(e, &i));)
        lost |= l->lost;
    if (lost && !e->lost_reported)
        ev_timer_set(e->ev, &e->lost_timer, 0, engine_on_lost_timer, e);
}

static const struct driver_events engine_driver_events = { .on_exit = engine_on_exit,
                                                           .on_oom = engine_on_oom,
                                                           .on_lost = engine_on_link_lost,
                                                           .on_denial_notice = engine_on_denial_notice,
                                                           .on_denials_lost = engine_on_denials_lost };

/* --- lifecycle --- */

uint64_t engine_max_sandboxes(uint64_t nofile)
{
    return (nofile - min_u64(OTHER_FDS, nofile / 2)) / SANDBOX_HANDLE_FDS;
}

static void engine_close_links(struct engine *e)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        struct driver_link *l = e->links[i];

        for (unsigned k = i; l && k < DRIVER_COUNT; k++)
            if (e->links[k] == l)
                e->links[k] = NULL;
        if (l)
            l->ops->close(l);
    }
}

/* Drivers with the same operations share a link. */
static int engine_open_links(struct engine *e, const struct driver_settings *s, struct err *err)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        const struct driver_ops *ops = drivers_ops((enum driver_id)i);

        for (unsigned k = 0; k < i && !e->links[i]; k++)
            if (e->links[k]->ops == ops)
                e->links[i] = e->links[k];
        if (!e->links[i] && ops->open(e->ev, s, &engine_driver_events, e, &e->links[i], err) < 0)
            return -1;
    }
    return 0;
}

int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct engine *e = mem_new(struct engine);
    struct rlimit files = { .rlim_cur = 0 };

    (void)getrlimit(RLIMIT_NOFILE, &files);
    e->max_handles = engine_max_sandboxes(files.rlim_cur);
    e->ev = ev;
    e->ops = ops;
    e->arg = arg;
    e->cores = cores > 0 ? (uint32_t)cores : 1;
    if (engine_open_links(e, &(struct driver_settings){ .jailer_fd = jailer_fd }, err) < 0) {
        engine_close_links(e);
        free(e);
        return -1;
    }
    egress_link_init(&e->egress, ev, &sandbox_network_link_ops, e);
    *ret = e;
    return 0;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    e->ops = NULL;
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        while (e->handles[i])
            sandbox_handle_detach_engine(e->handles[i]);
    ev_timer_clear(e->ev, &e->lost_timer);
    egress_link_done(&e->egress);
    engine_close_links(e);
    while (e->lists)
        engine_list_free(e->lists);
    driver_free_deferred(e->ev, &e->defer, e);
}
