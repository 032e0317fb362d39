/* From a spec to a ready sandbox: creation by the driver, HELLO, CLAIM, and in parallel its rules
 * in the egress proxy (sandbox_network.c).
 *
 * The request to the driver and CLAIM are both encoded when the sandbox_handle is created, so the
 * caller's spec need not be copied, and every mistake in it is found before anything exists. CLAIM
 * follows HELLO without waiting for the reply: the runtime reads them in order and refuses a claim
 * from a version that it does not speak, so waiting would only cost a round trip. A runtime that a
 * previous server process claimed answers HELLO and sends CLAIMED once more.
 *
 * Invariants:
 * 1. The walls are checked twice, when the driver has created the sandbox (for a prepared one when
 *    it is claimed) and at CLAIMED; a sandbox with a missing wall never becomes ready.
 * 2. Memory that held the claim (environment, entropy) is wiped before it is released. */
#include "sandbox/engine_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/walls.h"

#include <errno.h>
#include <sys/random.h>

static int sandbox_claim_random_bytes(void *out, size_t len, struct err *err)
{
    uint8_t *p = out;

    for (size_t done = 0; done < len;) {
        ssize_t n = getrandom(p + done, len - done, 0);

        if (n < 0 && errno != EINTR)
            return err_sys(err, ERR_SYS, "getrandom");
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* --- CLAIM --- */

static int sandbox_claim_add_rule(struct rt_claim *m, uint8_t access, const char *path, struct err *err)
{
    struct rt_rule *r = &m->rules[m->nrules];

    if (m->nrules == RT_RULES_MAX)
        return err_set(err, ERR_LIMIT, "file rules: more than %d", RT_RULES_MAX);
    r->access = access;
    if (strlen(path) > RT_RULE_PATH_MAX)
        return err_set(err, ERR_INVALID, "'%s': the path is too long for a file rule", path);
    r->path = path;
    m->nrules++;
    return 0;
}

static int sandbox_claim_add_rules(struct rt_claim *m, const struct sandbox_spec *spec, struct err *err)
{
    size_t n;
    const struct file_rule *rules = level_file_rules(spec->level, &n);

    for (size_t i = 0; i < n; i++) {
        unsigned access = rules[i].access | (rules[i].optional ? RT_ACCESS_OPTIONAL : 0);

        if (sandbox_claim_add_rule(m, (uint8_t)access, rules[i].path, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == SANDBOX_MOUNT_BIND_RO &&
            sandbox_claim_add_rule(m, RT_ACCESS_READ_EXEC, spec->mounts[i].dst, err) < 0)
            return -1;
    return 0;
}

static size_t sandbox_claim_count_env(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* The environment of the level, overridden by the spec: a name that both have appears once, with
 * the value of the spec. */
static const char **sandbox_claim_merge_env(const char *const *base, const char *const *over)
{
    const char **out = mem_new_array(const char *, sandbox_claim_count_env(base) + sandbox_claim_count_env(over) + 1);
    size_t n = 0;

    for (size_t i = 0; i < sandbox_claim_count_env(base); i++) {
        size_t name = strcspn(base[i], "=") + 1;
        bool replaced = false;

        for (size_t j = 0; j < sandbox_claim_count_env(over) && !replaced; j++)
            replaced = strncmp(base[i], over[j], name) == 0;
        if (!replaced)
            out[n++] = base[i];
    }
    for (size_t j = 0; j < sandbox_claim_count_env(over); j++)
        out[n++] = over[j];
    out[n] = NULL;
    return out;
}

int sandbox_claim_prepare(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err)
{
    const struct wall_demand demand = { .level = spec->level,
                                        .driver = spec->driver,
                                        .rootless = b->created.rootless && !spec->require_all_walls };
    struct rt_claim m = { .landlock_min = walls_landlock_min(&demand) };
    PAYLOAD(payload);

    memcpy(m.id, b->id, sizeof(m.id));
    if (b->state != SANDBOX_HANDLE_CREATING)
        m.walls = walls_inside_needed(&demand);
    b->runtime_checks_walls = m.walls != 0;
    for (size_t i = 0; i < sandbox_claim_count_env(spec->env); i++)
        if (spec->env[i][0] == '=' || !strchr(spec->env[i], '='))
            return err_set(err, ERR_INVALID, "environment entry '%.60s' is not NAME=value", spec->env[i]);
    if (sandbox_claim_random_bytes(m.entropy, sizeof(m.entropy), err) < 0 || sandbox_claim_add_rules(&m, spec, err) < 0)
        return -1;
    auto_free const char **env = sandbox_claim_merge_env(level_environment(spec->level, spec->network.mode), spec->env);
    m.env = env;
    int len = rt_claim_encode(&m, payload, err);
    if (len >= 0) {
        b->claim = mem_copy(payload, (size_t)len);
        b->claim_len = (uint32_t)len;
    } else {
        err_wrap(err, "environment and file rules of the sandbox");
    }
    explicit_bzero(m.entropy, sizeof(m.entropy));
    explicit_bzero(payload, len >= 0 ? (size_t)len : sizeof(payload));
    return len < 0 ? -1 : 0;
}

void sandbox_claim_drop(struct sandbox_handle *b)
{
    if (b->claim)
        explicit_bzero(b->claim, b->claim_len);
    free(take_ptr(&b->claim));
}

/* --- the steps --- */

static void sandbox_claim_on_created(struct driver_request *r, struct driver_created *c, const struct err *err);

static int sandbox_claim_check_mounts(const struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->nmounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (!(b->caps->mounts >> m->kind & 1))
            return err_set(err, ERR_DRIVER_UNSUPPORTED, "mount %zu: driver %s has no mounts of this kind", i,
                           driver_name(b->kind.driver));
        if (m->reference && !b->caps->mount_references)
            return err_set(err, ERR_DRIVER_UNSUPPORTED, "mount %.60s: driver %s takes descriptors and no references",
                           m->reference, driver_name(b->kind.driver));
        if ((m->fd < 0) == !m->reference)
            return err_set(err, ERR_BUG, "mount %zu: must have either a descriptor or a reference", i);
        if (m->kind == SANDBOX_MOUNT_BIND_RO &&
            (!m->dst || m->dst[0] != '/' || strlen(m->dst) >= SANDBOX_MOUNT_DST_MAX))
            return err_set(err, ERR_BIND_TARGET, "bind target '%s' is not an absolute path of at most %d bytes",
                           m->dst ? m->dst : "", SANDBOX_MOUNT_DST_MAX - 1);
    }
    return 0;
}

int sandbox_claim_start(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err)
{
    if (sandbox_claim_check_mounts(b, spec, err) < 0 ||
        sandbox_claim_random_bytes(&b->epoch, sizeof(b->epoch), err) < 0)
        return -1;
    if (!b->is_unclaimed && sandbox_network_prepare(b, spec, err) < 0)
        return -1;
    if (b->adopted) {
        b->link->ops->adopt(b->link, b->id, sandbox_claim_on_created, b);
        return 0;
    }
    if (!b->is_unclaimed && sandbox_claim_prepare(b, spec, err) < 0)
        return -1;
    return b->link->ops->create(b->link, b->id, &b->kind, spec, sandbox_claim_on_created, b, err) ? 0 : -1;
}

static void sandbox_claim_send_frame(struct sandbox_handle *b)
{
    struct frame claim = { .type = FRAME_CLAIM, .len = b->claim_len, .data = b->claim };

    chan_send(&b->chan, &claim);
    sandbox_claim_drop(b);
    b->claim_sent = true;
}

static void sandbox_claim_on_limits_set(struct driver_request *r, const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (b->state >= SANDBOX_HANDLE_READY)
        return;
    if (err)
        sandbox_handle_fail(b, err);
    else
        sandbox_claim_send_frame(b);
}

/* The driver enforces the lifetime too, starting when the sandbox is to be kept. */
static void sandbox_claim_send_limits(struct sandbox_handle *b, bool all)
{
    b->driver_limits = b->limits;
    b->link->ops->set_limits(b->link, b->id, b->limits.v[LIMIT_LIFETIME], all ? &b->limits : NULL,
                             all ? sandbox_claim_on_limits_set : NULL, all ? b : NULL);
}

/* A sandbox that was prepared with other limits gets the limits of the claim before it runs
 * anything. */
static void sandbox_claim_send(struct sandbox_handle *b)
{
    bool late = !sandbox_limits_equal(&b->driver_limits, &b->limits);

    if (!late)
        sandbox_claim_send_frame(b);
    if (late || b->limits.v[LIMIT_LIFETIME] != b->driver_limits.v[LIMIT_LIFETIME])
        sandbox_claim_send_limits(b, late);
}

static void sandbox_claim_send_hello(struct sandbox_handle *b)
{
    struct rt_hello hello = { .version = WIRE_VERSION, .epoch = b->epoch };
    PAYLOAD(payload);
    int len = rt_hello_encode(&hello, payload, NULL);
    struct frame f = { .type = FRAME_HELLO, .len = len > 0 ? (uint32_t)len : 0, .data = payload };

    chan_send(&b->chan, &f);
    if (!b->is_unclaimed)
        sandbox_network_bind(b);
    if (!b->adopted && !b->is_unclaimed)
        sandbox_claim_send(b);
}

/* Some walls need root; without root they are missing, and the receipt says so, unless the spec
 * requires them. */
static struct wall_demand sandbox_claim_wall_demand(const struct sandbox_handle *b)
{
    return (struct wall_demand){ .level = b->level,
                                 .driver = b->kind.driver,
                                 .rootless = b->created.rootless && !b->require_all_walls };
}

static int sandbox_claim_check_enforced(const struct sandbox_handle *b, struct err *err)
{
    static const char *const states[] = { "not at all", "in part" };

    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        uint8_t e = b->created.limits.enforcement[i];
        const char *why = limit_reason_text(b->created.limits.reason[i]);

        if (b->require_enforced >> i & 1 && e < ENFORCEMENT_FULL && !limit_is_unlimited((enum limit)i, b->limits.v[i]))
            return err_set(err, ERR_LIMIT_PARTIAL,
                           "%s is enforced %s on this host, and this sandbox requires it completely%s%s",
                           limit_info((enum limit)i)->name, states[e], why ? ": " : "", why ? why : "");
    }
    return 0;
}

static int sandbox_claim_check_driver_report(const struct sandbox_handle *b, struct err *err)
{
    struct wall_demand demand = sandbox_claim_wall_demand(b);

    if (walls_check_outside(&demand, b->created.walls, err) < 0)
        return -1;
    return sandbox_claim_check_enforced(b, err);
}

static int sandbox_claim_take_created(struct sandbox_handle *b, struct driver_created *c, struct err *err)
{
    static const enum limit ours[] = { LIMIT_WALL, LIMIT_LIFETIME, LIMIT_IDLE, LIMIT_OUTPUT };

    b->pidfd = take_fd(&c->pidfd);
    b->cpu_fd = take_fd(&c->cpu_fd);
    b->oom_fd = take_fd(&c->oom_fd);
    b->created = *c;
    b->created.control_fd = -1;
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) /* the engine enforces these, whatever the host can do */
        b->created.limits.enforcement[ours[i]] = ENFORCEMENT_FULL;
    if (b->cpu_fd >= 0)
        b->created.limits.enforcement[LIMIT_CPU_TIME] = ENFORCEMENT_FULL;
    if (!b->is_unclaimed && sandbox_claim_check_driver_report(b, err) < 0)
        return -1;
    return sandbox_handle_connect(b, take_fd(&c->control_fd), err);
}

/* The sandbox has work to do before it reads HELLO, so its owner can use the time. */
static void sandbox_claim_greet(struct sandbox_handle *b)
{
    sandbox_claim_send_hello(b);
    if (b->ops && b->ops->on_created && !b->adopted)
        b->ops->on_created(b->arg);
}

static void sandbox_claim_on_created(struct driver_request *r, struct driver_created *c, const struct err *err)
{
    struct sandbox_handle *b = r->owner;
    struct err why = { 0 };

    if (b->state != SANDBOX_HANDLE_CREATING) { /* the reply came too late */
        if (c && !b->adopted)
            b->link->ops->destroy(b->link, b->id, NULL, NULL);
        return;
    }
    if (!c) {
        sandbox_handle_fail(b, err);
        return;
    }
    b->state = SANDBOX_HANDLE_HELLO; /* from here on there is a sandbox to destroy */
    if (b->destroy_wanted)
        sandbox_handle_start_destroy(b);
    else if (err)
        sandbox_handle_fail(b, err);
    else if (sandbox_claim_take_created(b, c, &why) < 0)
        sandbox_handle_fail(b, &why);
    else
        sandbox_claim_greet(b);
}

void sandbox_claim_proceed(struct sandbox_handle *b)
{
    struct err why = { 0 };

    if (b->state == SANDBOX_HANDLE_CREATING)
        return; /* continues like a new sandbox */
    if (sandbox_claim_check_driver_report(b, &why) < 0) {
        sandbox_handle_fail(b, &why);
        return;
    }
    sandbox_network_bind(b);
    sandbox_claim_send(b);
}

/* Sends the file rules of most claims in advance, so that the runtime need not prepare them
 * while a request waits. */
void sandbox_claim_preload_rules(struct sandbox_handle *b)
{
    struct rt_claim m = { 0 };
    struct sandbox_spec usual = { .level = LEVEL_STANDARD };
    static const char *const none[] = { NULL };
    PAYLOAD(payload);

    memcpy(m.id, b->id, sizeof(m.id));
    m.env = none;
    int len = sandbox_claim_add_rules(&m, &usual, NULL) < 0 ? -1 : rt_claim_encode(&m, payload, NULL);
    struct frame f = { .type = FRAME_PRELOAD_RULES, .len = (uint32_t)len, .data = payload };
    if (len > 0)
        chan_send(&b->chan, &f);
}

static void sandbox_claim_on_hello(struct sandbox_handle *b, const struct frame *f)
{
    struct rt_hello m;
    struct err err = { 0 };

    if (b->state != SANDBOX_HANDLE_HELLO) {
        sandbox_handle_protocol_error(b, "a second HELLO");
    } else if (rt_hello_decode(f, &m, &err) < 0) {
        sandbox_handle_protocol_error(b, "HELLO: %s", err.msg);
    } else if (m.version != WIRE_VERSION) {
        err_set(&err, ERR_VERSION, "cove-runtime speaks version %u of the protocol, this cove version %u", m.version,
                WIRE_VERSION);
        sandbox_handle_fail(b, &err);
    } else if (m.epoch != b->epoch) {
        sandbox_handle_protocol_error(b, "HELLO that does not echo the epoch");
    } else {
        b->state = SANDBOX_HANDLE_CLAIMING;
        if (b->is_unclaimed) {
            if (m.features & RT_FEATURE_PRELOAD_RULES)
                sandbox_claim_preload_rules(b);
            b->supports_warm_up = m.features & RT_FEATURE_WARM_UP;
            sandbox_handle_set_timer(b, CLOCKS_NEVER);
            if (b->ops && b->ops->on_ready)
                b->ops->on_ready(b->arg);
        }
    }
}

static void sandbox_claim_on_claimed(struct sandbox_handle *b, const struct frame *f)
{
    struct wall_demand demand = sandbox_claim_wall_demand(b);
    struct err err = { 0 };

    if (b->state != SANDBOX_HANDLE_CLAIMING || b->is_unclaimed)
        sandbox_handle_protocol_error(b, "CLAIMED without a claim");
    else if (rt_claimed_decode(f, &b->runtime_report, &err) < 0)
        sandbox_handle_protocol_error(b, "CLAIMED: %s", err.msg);
    else if (walls_check_inside(&demand, b->runtime_report.walls, b->runtime_report.landlock_abi, &err) < 0)
        sandbox_handle_fail(b, &err);
    else if (!sandbox_network_is_awaited(b))
        sandbox_handle_set_ready(b);
}

static void sandbox_claim_on_error(struct sandbox_handle *b, const struct frame *f)
{
    struct rt_error m;
    struct err err = { 0 };

    if (b->state != SANDBOX_HANDLE_HELLO && b->state != SANDBOX_HANDLE_CLAIMING) {
        sandbox_handle_protocol_error(b, "an ERROR that belongs to no request");
    } else if (rt_error_decode(f, &m, &err) < 0) {
        sandbox_handle_protocol_error(b, "ERROR: %s", err.msg);
    } else {
        rt_error_to_err(&m, &err);
        err_wrap(&err, "setting up the sandbox");
        sandbox_handle_fail(b, &err);
    }
}

/* Frames for the previous server process may still be in the socket. They end with the reply to
 * our own HELLO. */
void sandbox_claim_on_adopted_frame(struct sandbox_handle *b, const struct frame *f)
{
    struct rt_hello m;

    if (f->type == FRAME_HELLO && f->stream == 0 && rt_hello_decode(f, &m, NULL) == 0 && m.epoch == b->epoch)
        sandbox_claim_on_hello(b, f);
}

void sandbox_claim_on_frame(struct sandbox_handle *b, const struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO:
        sandbox_claim_on_hello(b, f);
        break;
    case FRAME_CLAIMED:
        sandbox_claim_on_claimed(b, f);
        break;
    case FRAME_ERROR:
        sandbox_claim_on_error(b, f);
        break;
    case FRAME_INTERPRETER_LOST:
        sandbox_handle_interpreter_lost(b, f);
        break;
    default:
        sandbox_handle_protocol_error(b, "a %s frame on stream 0", frame_name(f->type));
    }
}
