/* From a spec to a box that is ready: J_CREATE, HELLO, CLAIM.
 *
 * Both J_CREATE and CLAIM are encoded when the box is made, so nothing of the caller's spec has to be copied and every
 * mistake in it is found before anything exists. CLAIM follows HELLO without waiting for its echo: the runtime reads
 * them in order and refuses a claim from a version it does not speak, so waiting would only cost a round trip. A
 * runtime that was claimed by an earlier host answers HELLO and says CLAIMED once more.
 *
 * Invariants:
 * 1. The walls are checked twice, at J_CREATED (for a spare when it is taken) and at CLAIMED; a box with a wall too few
 *    never becomes ready.
 * 2. Memory that held the claim (environment, entropy) is wiped before it is released. */
#include "engine/inside.h"

#include "base/mem.h"
#include "base/str.h"
#include "engine/walls.h"

#include <errno.h>
#include <sys/random.h>

static int random_bytes(void *out, size_t len, struct err *err)
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

/* --- J_CREATE --- */

static int add_mount(struct jail_create *m, const struct box_mount *bm, struct err *err)
{
    static const uint8_t kinds[] = {
        [BOX_BIND_RO] = JAIL_BIND_RO, [BOX_WORKSPACE] = JAIL_WORKSPACE, [BOX_WORKSPACE_COW] = JAIL_WORKSPACE_COW
    };
    struct jail_mount *jm = &m->mounts[m->nmounts];

    if ((size_t)bm->kind >= ARRAY_LEN(kinds) || bm->fd < 0)
        return err_set(err, ERR_BUG, "mount %u is not one", m->nmounts);
    jm->kind = kinds[bm->kind];
    jm->fd = (uint8_t)m->nmounts;
    if (bm->kind == BOX_BIND_RO && (!bm->dst || bm->dst[0] != '/' || !str_copy(jm->dst, sizeof(jm->dst), bm->dst)))
        return err_set(err, ERR_BIND_TARGET, "bind target '%s' is not an absolute path of at most %d bytes",
                       bm->dst ? bm->dst : "", JAIL_DST_MAX - 1);
    m->nmounts++;
    return 0;
}

static int encode_create(const struct box *b, const struct box_spec *spec, uint8_t *out, struct err *err)
{
    struct jail_create m = { .owner_uid = spec->owner_uid, .owner_gid = spec->owner_gid, .nlimits = LIMIT_COUNT };

    _Static_assert(LIMIT_COUNT <= JAIL_LIMITS_MAX, "every limit travels");
    memcpy(m.id, b->id, sizeof(m.id));
    engine_template_name(&b->kind, m.template);
    if (!str_copy(m.hostname, sizeof(m.hostname), spec->hostname ? spec->hostname : "cove"))
        return err_set(err, ERR_INVALID, "a host name has at most %d bytes", JAIL_NAME_MAX - 1);
    memcpy(m.limits, spec->limits.v, sizeof(spec->limits.v));
    if (spec->nmounts > JAIL_MOUNTS_MAX)
        return err_set(err, ERR_LIMIT, "%zu mounts, and a sandbox takes %d", spec->nmounts, JAIL_MOUNTS_MAX);
    for (size_t i = 0; i < spec->nmounts; i++)
        if (add_mount(&m, &spec->mounts[i], err) < 0)
            return -1;
    return jail_create_encode(&m, out, err);
}

/* --- CLAIM --- */

static int add_rule(struct rt_claim *m, uint8_t access, const char *path, struct err *err)
{
    struct rt_rule *r = &m->rules[m->nrules];

    if (m->nrules == RT_RULES_MAX)
        return err_set(err, ERR_LIMIT, "more than %d file rules", RT_RULES_MAX);
    r->access = access;
    if (strlen(path) > RT_RULE_PATH_MAX)
        return err_set(err, ERR_INVALID, "the path '%s' is too long for a file rule", path);
    r->path = path;
    m->nrules++;
    return 0;
}

static int add_rules(struct rt_claim *m, const struct box_spec *spec, struct err *err)
{
    size_t n;
    const struct file_rule *rules = level_file_rules(spec->level, &n);

    for (size_t i = 0; i < n; i++) {
        unsigned access = rules[i].access | (rules[i].optional ? RT_ACCESS_OPTIONAL : 0);

        if (add_rule(m, (uint8_t)access, rules[i].path, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == BOX_BIND_RO && add_rule(m, RT_ACCESS_READ_EXEC, spec->mounts[i].dst, err) < 0)
            return -1;
    return 0;
}

static size_t count(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* The level's environment with the spec's on top: a name that both have appears once, as the spec says it. */
static const char **merge_env(const char *const *base, const char *const *over)
{
    const char **out = mem_new_array(const char *, count(base) + count(over) + 1);
    size_t n = 0;

    for (size_t i = 0; i < count(base); i++) {
        size_t name = strcspn(base[i], "=") + 1;
        bool replaced = false;

        for (size_t j = 0; j < count(over) && !replaced; j++)
            replaced = strncmp(base[i], over[j], name) == 0;
        if (!replaced)
            out[n++] = base[i];
    }
    for (size_t j = 0; j < count(over); j++)
        out[n++] = over[j];
    out[n] = NULL;
    return out;
}

int claim_prepare(struct box *b, const struct box_spec *spec, struct err *err)
{
    struct rt_claim m = { .landlock_min = walls_landlock_min(spec->level) };
    PAYLOAD(payload);

    memcpy(m.id, b->id, sizeof(m.id));
    if (b->state != BOX_CREATING)
        m.walls = walls_inside_needed(b->outside.walls & JAIL_ROOTLESS && !spec->every_wall);
    b->demanding = m.walls != 0;
    for (size_t i = 0; i < count(spec->env); i++)
        if (spec->env[i][0] == '=' || !strchr(spec->env[i], '='))
            return err_set(err, ERR_INVALID, "environment entry '%.60s' is not NAME=value", spec->env[i]);
    if (random_bytes(m.entropy, sizeof(m.entropy), err) < 0 || add_rules(&m, spec, err) < 0)
        return -1;
    auto_free const char **env = merge_env(level_environment(spec->level), spec->env);
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

void claim_drop(struct box *b)
{
    if (b->claim)
        explicit_bzero(b->claim, b->claim_len);
    free(take_ptr(&b->claim));
}

/* --- the steps --- */

static void on_created(struct ask *ask, const struct answer *a, const struct err *err);

static void create(struct box *b, const struct box_spec *spec, const uint8_t *payload, uint32_t len)
{
    int fds[JAIL_MOUNTS_MAX];

    for (size_t i = 0; i < spec->nmounts; i++)
        fds[i] = spec->mounts[i].fd;
    engine_template(b->e, &b->kind);
    struct ask *a = engine_ask(b->e, FRAME_J_CREATE, payload, len, fds, spec->nmounts, on_created, b);
    memcpy(a->id, b->id, sizeof(a->id));
}

int claim_start(struct box *b, const struct box_spec *spec, struct err *err)
{
    PAYLOAD(payload);

    if (random_bytes(&b->epoch, sizeof(b->epoch), err) < 0)
        return -1;
    if (b->adopted) {
        engine_ask_id(b->e, FRAME_J_ADOPT, b->id, on_created, b);
        return 0;
    }
    int len = encode_create(b, spec, payload, err);
    if (len < 0 || (!b->spare && claim_prepare(b, spec, err) < 0))
        return -1;
    create(b, spec, payload, (uint32_t)len);
    return 0;
}

static void put_claim(struct box *b)
{
    struct frame claim = { .type = FRAME_CLAIM, .len = b->claim_len, .data = b->claim };

    chan_send(&b->chan, &claim);
    claim_drop(b);
    b->claim_sent = true;
}

static void on_limited(struct ask *ask, const struct answer *a UNUSED, const struct err *err)
{
    struct box *b = ask->owner;

    if (b->state >= BOX_READY)
        return;
    if (err)
        box_fail(b, err);
    else
        put_claim(b);
}

/* The jailer runs the clock of its life too, from the moment on at which the sandbox is to be kept. */
static void tell_limits(struct box *b, bool all)
{
    const uint64_t *v = b->limits.v;
    struct jail_extend m = { .lifetime_ms = v[LIMIT_LIFETIME] };
    PAYLOAD(payload);

    memcpy(m.id, b->id, sizeof(m.id));
    if (all) {
        m.memory = v[LIMIT_MEMORY];
        m.swap = v[LIMIT_SWAP];
        m.cpu = v[LIMIT_CPU];
        m.pids = v[LIMIT_PIDS];
    }
    b->told = b->limits;
    int len = jail_extend_encode(&m, payload, NULL);
    engine_ask(b->e, FRAME_J_EXTEND, payload, len > 0 ? (uint32_t)len : 0, NULL, 0, all ? on_limited : NULL,
               all ? b : NULL);
}

/* One that was prepared with other limits gets those of the claim before it runs anything. */
static void send_claim(struct box *b)
{
    bool late = !engine_same_limits(&b->told, &b->limits);

    if (!late)
        put_claim(b);
    if (late || b->limits.v[LIMIT_LIFETIME] != b->told.v[LIMIT_LIFETIME])
        tell_limits(b, late);
}

static void send_hello(struct box *b)
{
    struct rt_hello hello = { .version = WIRE_VERSION, .epoch = b->epoch };
    PAYLOAD(payload);
    int len = rt_hello_encode(&hello, payload, NULL);
    struct frame f = { .type = FRAME_HELLO, .len = len > 0 ? (uint32_t)len : 0, .data = payload };

    chan_send(&b->chan, &f);
    if (!b->adopted && !b->spare)
        send_claim(b);
}

/* Some walls need root; without it they are missing, and that is said, unless somebody demanded them. */
static bool lenient(const struct box *b)
{
    return b->outside.walls & JAIL_ROOTLESS && !b->every_wall;
}

static int check_enforced(const struct box *b, struct err *err)
{
    static const char *const states[] = { "not at all", "in part" };

    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        uint8_t e = b->outside.enforced[i];
        const char *why = limit_why(b->outside.why[i]);

        if (b->enforce >> i & 1 && e < JAIL_ENFORCED && !limit_unlimited((enum limit)i, b->limits.v[i]))
            return err_set(err, ERR_LIMIT_PARTIAL, "%s is enforced %s on this host, and it has to be whole%s%s",
                           limit_info((enum limit)i)->name, states[e], why ? ": " : "", why ? why : "");
    }
    return 0;
}

static int check_outside(const struct box *b, struct err *err)
{
    if (walls_check_outside(b->level, lenient(b), b->outside.walls, err) < 0)
        return -1;
    return check_enforced(b, err);
}

static int take_created(struct box *b, const struct answer *a, struct err *err)
{
    struct jail_created *m = &b->outside;

    if (jail_created_decode(a->f, m, err) < 0)
        return -1;
    if (a->nfds != 2u + m->cpu_fd + m->oom_fd || m->cpu_unit > 1 || m->nlimits > LIMIT_COUNT)
        return err_set(err, ERR_PROTOCOL, "J_CREATED with %zu descriptors", a->nfds);
    b->pidfd = take_fd(&a->fds[1]);
    if (m->cpu_fd)
        b->cpu_fd = take_fd(&a->fds[2]);
    if (m->oom_fd)
        b->oom_fd = take_fd(&a->fds[2 + m->cpu_fd]);
    /* These are kept by this side, whatever the host can do. */
    m->enforced[LIMIT_WALL] = m->enforced[LIMIT_LIFETIME] = m->enforced[LIMIT_IDLE] = JAIL_ENFORCED;
    m->enforced[LIMIT_OUTPUT] = JAIL_ENFORCED;
    if (b->cpu_fd >= 0)
        m->enforced[LIMIT_CPU_TIME] = JAIL_ENFORCED;
    if (!b->spare && check_outside(b, err) < 0)
        return -1;
    return box_wire(b, take_fd(&a->fds[0]), err);
}

/* The sandbox has work to do before it reads any of this, and its owner has a moment. */
static void greet(struct box *b)
{
    send_hello(b);
    if (b->ops && b->ops->on_made && !b->adopted)
        b->ops->on_made(b->arg);
}

static void on_created(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;
    struct err why = { 0 };

    if (b->state != BOX_CREATING) { /* it came too late */
        if (!err && !b->adopted)
            engine_ask_id(b->e, FRAME_J_DESTROY, b->id, NULL, NULL);
        return;
    }
    if (err && err->id == ERR_MISSING && !b->adopted) { /* its spawner died */
        engine_template_gone(b->e, &b->kind);
        err_set(&why, ERR_BUSY, "what makes sandboxes of this kind has died and is made again; ask again");
        err = &why;
    }
    if (err) {
        box_fail(b, err);
        return;
    }
    b->state = BOX_HELLO; /* from here on there is something to destroy */
    if (b->destroy_wanted)
        box_destroy_now(b);
    else if (take_created(b, a, &why) < 0)
        box_fail(b, &why);
    else
        greet(b);
}

void claim_go(struct box *b)
{
    struct err why = { 0 };

    if (b->state == BOX_CREATING)
        return; /* it goes the way of every other from here on */
    if (check_outside(b, &why) < 0)
        box_fail(b, &why);
    else
        send_claim(b);
}

/* What most claims say of files, so that the runtime need not begin with it when somebody waits. */
void claim_expect(struct box *b)
{
    struct rt_claim m = { 0 };
    struct box_spec usual = { .level = LEVEL_STANDARD };
    static const char *const none[] = { NULL };
    PAYLOAD(payload);

    memcpy(m.id, b->id, sizeof(m.id));
    m.env = none;
    int len = add_rules(&m, &usual, NULL) < 0 ? -1 : rt_claim_encode(&m, payload, NULL);
    struct frame f = { .type = FRAME_EXPECT, .len = (uint32_t)len, .data = payload };
    if (len > 0)
        chan_send(&b->chan, &f);
}

static void on_hello(struct box *b, const struct frame *f)
{
    struct rt_hello m;
    struct err err = { 0 };

    if (b->state != BOX_HELLO) {
        box_violate(b, "a second HELLO");
    } else if (rt_hello_decode(f, &m, &err) < 0) {
        box_violate(b, "HELLO: %s", err.msg);
    } else if (m.version != WIRE_VERSION) {
        err_set(&err, ERR_VERSION, "cove-runtime speaks version %u of the wire, this cove version %u", m.version,
                WIRE_VERSION);
        box_fail(b, &err);
    } else if (m.epoch != b->epoch) {
        box_violate(b, "HELLO that does not echo the epoch");
    } else {
        b->state = BOX_CLAIMING;
        if (b->spare) {
            if (m.features & RT_FEATURE_EXPECT)
                claim_expect(b);
            b->rehearses = m.features & RT_FEATURE_REHEARSE;
            box_set_timer(b, CLOCKS_NEVER);
            if (b->ops && b->ops->on_ready)
                b->ops->on_ready(b->arg);
        }
    }
}

static void on_claimed(struct box *b, const struct frame *f)
{
    struct err err = { 0 };

    if (b->state != BOX_CLAIMING || b->spare)
        box_violate(b, "CLAIMED without a claim");
    else if (rt_claimed_decode(f, &b->inside, &err) < 0)
        box_violate(b, "CLAIMED: %s", err.msg);
    else if (walls_check_inside(b->level, lenient(b), b->inside.walls, b->inside.landlock_abi, &err) < 0)
        box_fail(b, &err);
    else
        box_ready(b);
}

static void on_refused(struct box *b, const struct frame *f)
{
    struct rt_error m;
    struct err err = { 0 };

    if (b->state != BOX_HELLO && b->state != BOX_CLAIMING) {
        box_violate(b, "an ERROR about nothing");
    } else if (rt_error_decode(f, &m, &err) < 0) {
        box_violate(b, "ERROR: %s", err.msg);
    } else {
        engine_error(&m, &err);
        err_wrap(&err, "setting up the sandbox");
        box_fail(b, &err);
    }
}

/* What was meant for the host before us may still lie in the socket. It ends where our own HELLO comes back. */
void claim_greeting(struct box *b, const struct frame *f)
{
    struct rt_hello m;

    if (f->type == FRAME_HELLO && f->stream == 0 && rt_hello_decode(f, &m, NULL) == 0 && m.epoch == b->epoch)
        on_hello(b, f);
}

void claim_frame(struct box *b, const struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO:
        on_hello(b, f);
        break;
    case FRAME_CLAIMED:
        on_claimed(b, f);
        break;
    case FRAME_ERROR:
        on_refused(b, f);
        break;
    case FRAME_MEMBER_LOST:
        box_member_lost(b, f);
        break;
    default:
        box_violate(b, "a %s frame on stream 0", frame_name(f->type));
    }
}
