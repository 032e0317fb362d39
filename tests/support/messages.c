#include "messages.h"

#include "core/wire/egress.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

#define ID_1 "sbabcdefghijklmnopqrst"
#define ID_2 "sb234567234567234567ab"

static struct frame frame_of(const uint8_t *data, int len)
{
    return (struct frame){ .type = FRAME_DATA, .len = (uint32_t)len, .data = data };
}

/* PLAIN(name, fields...): a message without pointers. Bytes can be compared: the example is static
 * and the decoder's struct starts zeroed, so the padding of both is zero. */
#define PLAIN(m, ...)                                                                                                \
    static const struct m m##_example_value = { __VA_ARGS__ };                                                       \
    static int m##_example(uint8_t *out, struct err *err)                                                            \
    {                                                                                                                \
        return m##_encode(&m##_example_value, out, err);                                                             \
    }                                                                                                                \
    static int m##_again(const struct frame *f, uint8_t *out, struct err *err)                                       \
    {                                                                                                                \
        static struct m value;                                                                                       \
                                                                                                                     \
        if (m##_decode(f, &value, err) < 0)                                                                          \
            return -1;                                                                                               \
        int n = m##_encode(&value, out, err);                                                                        \
        if (n < 0)                                                                                                   \
            abort();                                                                                                 \
        return n;                                                                                                    \
    }                                                                                                                \
    static bool m##_kept(void)                                                                                       \
    {                                                                                                                \
        static uint8_t bytes[FRAME_PAYLOAD_MAX];                                                                     \
        static struct m value;                                                                                       \
        int n = m##_example(bytes, NULL);                                                                            \
        struct frame f = frame_of(bytes, n);                                                                         \
                                                                                                                     \
        return n > 0 && m##_decode(&f, &value, NULL) == 0 && memcmp(&value, &m##_example_value, sizeof(value)) == 0; \
    }                                                                                                                \
    struct m

PLAIN(rt_hello, .version = WIRE_VERSION, .epoch = 0x1122334455667788, .features = 0x99aabbcc);
PLAIN(rt_number, .value = 0x01020304);
PLAIN(rt_resume, .request = FRAME_EXEC, .out = 1, .in = UINT64_MAX);
PLAIN(rt_error, .id = ERR_MISSING, .sys = -2, .msg = "no such file");
PLAIN(rt_claimed, .walls = RT_WALL_SECCOMP | RT_WALL_NET, .landlock_abi = 6);
PLAIN(rt_reset, .processes = 1, .objects = 2, .files = 3, .sockets = 4, .altered = 1, .full = 1);
PLAIN(rt_stats, .processes = 1, .executions = 2, .workspace_bytes = 3, .workspace_bytes_max = 4, .workspace_files = 5,
      .workspace_files_max = 6, .tmp_bytes = 7, .tmp_bytes_max = 8);
PLAIN(rt_signal, .signo = 15, .scope = RT_SCOPE_TREE);
PLAIN(rt_resize, .rows = 24, .cols = 80);
PLAIN(rt_exit, .code = -1, .signal = 9, .user_us = 1, .sys_us = 2, .max_rss = 3, .read_bytes = 4, .write_bytes = 5,
      .tasks_started = RT_UNKNOWN, .full = RT_FULL_TMP | RT_FULL_SHM);
PLAIN(rt_path, .path = "/workspace/a", .offset = 1, .length = 2, .mode = 0644, .flags = RT_PATH_PARENTS);
PLAIN(rt_move, .from = "/workspace/a", .to = "/workspace/b", .flags = RT_PATH_EXCL);
PLAIN(rt_done, .bytes = 1, .files = 2, .added = 3, .modified = 4, .deleted = 5, .skipped = 6, .truncated = 1);

PLAIN(jail_zygote, .template = "python", .language = "python", .preload = "json,numpy");
PLAIN(jail_template, .name = "python", .profile = 1, .grants = 1, .deny = { 1, [7] = 1ull << 63 }, .joinable = 1,
      .egress = 1);
PLAIN(jail_create, .id = ID_1, .template = "python", .hostname = "cove", .owner_uid = 1000, .owner_gid = 1001,
      .limits = { 1, 2, UINT64_MAX }, .nlimits = 3, .network = 1,
      .mounts = { { JAIL_BIND_RO, 1, "/mnt/a" }, { JAIL_WORKSPACE_COW, 2, "/workspace" } }, .nmounts = 2);
PLAIN(jail_created, .pid = 1, .host_uid = 1900000000, .walls = JAIL_WALL_USER_NS | JAIL_WALL_UNIQUE_UID, .cpu_fd = 1,
      .cpu_unit = 1, .egress_carrier = EGRESS_CARRIER_TPROXY, .cgroup = "hybrid",
      .enforced = { JAIL_ENFORCED, JAIL_NONE, JAIL_PARTIAL }, .why = { 0, 3, 255 }, .nlimits = 3);
PLAIN(jail_id, .id = ID_1);
PLAIN(jail_set_limits, .id = ID_1, .lifetime_ms = 60000);
PLAIN(jail_stats, 1, 2, 3, 4, 5, 6, 7, 8, 9, JAIL_UNKNOWN);
PLAIN(jail_list, .n = 2, .ids = { ID_1, ID_2 });
PLAIN(jail_event, .id = ID_2, .kind = JAIL_EVENT_ENDED, .status = 0x8b);
PLAIN(jail_watch, .id = ID_1, .sys = 16);
PLAIN(jail_denial_notice, .id = ID_2, .watched = JAIL_WATCHED, .refused = 1);
PLAIN(jail_denied, .watched = JAIL_WATCHED, .overflow_count = 7,
      .entries = { { 165, { 0 }, 1 }, { 41, { 2, 3, 0xffffffff, 4 }, UINT64_MAX } }, .n = 2);

PLAIN(egress_listen, .id = ID_1, .carrier = EGRESS_CARRIER_TPROXY);
PLAIN(egress_id, .id = ID_2);
PLAIN(egress_reported, .carrier = EGRESS_CARRIER_PROXY, .connections = 1, .refused = 2, .failed = 3, .received = 4,
      .sent = 5, .other_destinations = 6, .n = 2,
      .destinations = { { "pypi.org", 443, 7, 8, 9, 10, 11, "" },
                        { "192.0.2.1", 65535, 0, UINT64_MAX, 0, 0, 0, "no rule allows 192.0.2.1:65535" } });
PLAIN(egress_listed, .n = 2, .more = 3,
      .connections = { { "pypi.org", 443, EGRESS_WAY_TUNNEL, 1, 2, 3 },
                       { "example.org", 80, EGRESS_WAY_SECRET, UINT64_MAX, 4, 5 } });
PLAIN(egress_secret_used, .id = ID_1, .name = "openai", .host = "api.openai.com", .count = 2);

/* Messages with string lists */

static bool same_list(const char *const *a, const char *const *b)
{
    for (; *a && *b; a++, b++)
        if (strcmp(*a, *b) != 0)
            return false;
    return !*a && !*b;
}

#define STRINGS(m)                                                             \
    static int m##_example(uint8_t *out, struct err *err)                      \
    {                                                                          \
        return m##_encode(&m##_example_value, out, err);                       \
    }                                                                          \
    static int m##_again(const struct frame *f, uint8_t *out, struct err *err) \
    {                                                                          \
        auto_free void *strings = NULL;                                        \
        struct m value;                                                        \
                                                                               \
        if (m##_decode(f, &value, &strings, err) < 0)                          \
            return -1;                                                         \
        int n = m##_encode(&value, out, err);                                  \
        if (n < 0)                                                             \
            abort();                                                           \
        return n;                                                              \
    }                                                                          \
    struct m

static const char *const example_env[] = { "HOME=/workspace", "EMPTY=", "", NULL };
static const char *const example_argv[] = { "python3", "-c", "print('hello')", NULL };

static const struct rt_claim rt_claim_example_value = {
    .id = ID_1,
    .entropy = { 1, 2, 3, [31] = 255 },
    .landlock_min = 1,
    .rules = { { RT_ACCESS_READ_EXEC, "/usr" }, { RT_ACCESS_READ_WRITE | RT_ACCESS_OPTIONAL, "/workspace" } },
    .nrules = 2,
    .env = example_env,
};
STRINGS(rt_claim);

static bool rt_claim_kept(void)
{
    static uint8_t bytes[FRAME_PAYLOAD_MAX];
    auto_free void *strings = NULL;
    struct frame f = frame_of(bytes, rt_claim_example(bytes, NULL));
    const struct rt_claim *want = &rt_claim_example_value;
    struct rt_claim got;

    if (rt_claim_decode(&f, &got, &strings, NULL) < 0)
        return false;
    bool same = got.nrules == want->nrules && got.landlock_min == want->landlock_min && strcmp(got.id, want->id) == 0 &&
                memcmp(got.entropy, want->entropy, sizeof(got.entropy)) == 0 && same_list(got.env, want->env);
    for (uint32_t i = 0; same && i < got.nrules; i++)
        same = got.rules[i].access == want->rules[i].access && strcmp(got.rules[i].path, want->rules[i].path) == 0;
    return same;
}

static const struct rt_exec rt_exec_example_value = {
    .flags = RT_EXEC_TTY | RT_EXEC_STDIN,
    .rows = 24,
    .cols = 80,
    .cwd = "/workspace/src",
    .argv = example_argv,
    .env = example_env,
};
STRINGS(rt_exec);

static bool rt_exec_kept(void)
{
    static uint8_t bytes[FRAME_PAYLOAD_MAX];
    auto_free void *strings = NULL;
    struct frame f = frame_of(bytes, rt_exec_example(bytes, NULL));
    const struct rt_exec *want = &rt_exec_example_value;
    struct rt_exec got;

    return rt_exec_decode(&f, &got, &strings, NULL) == 0 && got.flags == want->flags && got.rows == want->rows &&
           got.cols == want->cols && strcmp(got.cwd, want->cwd) == 0 && same_list(got.argv, want->argv) &&
           same_list(got.env, want->env);
}

static const char *const example_secrets[] = { "openai", "sk-1", "empty", "", NULL };

static const struct egress_bind egress_bind_example_value = {
    .id = ID_1,
    .tenant = "default",
    .connections_max = 256,
    .connection_rate = 50,
    .bytes_max = UINT64_MAX,
    .rules = "allow pypi.org\ndeny *.example.org:443\n",
    .secrets = example_secrets,
};
STRINGS(egress_bind);

static bool egress_bind_kept(void)
{
    static uint8_t bytes[FRAME_PAYLOAD_MAX];
    auto_free void *strings = NULL;
    struct frame f = frame_of(bytes, egress_bind_example(bytes, NULL));
    const struct egress_bind *want = &egress_bind_example_value;
    struct egress_bind got;

    return egress_bind_decode(&f, &got, &strings, NULL) == 0 && strcmp(got.id, want->id) == 0 &&
           strcmp(got.tenant, want->tenant) == 0 && got.connections_max == want->connections_max &&
           got.connection_rate == want->connection_rate && got.bytes_max == want->bytes_max &&
           strcmp(got.rules, want->rules) == 0 && same_list(got.secrets, want->secrets);
}

/* Items: one after another in the payload */

#define ITEMS(m)                                                                                                \
    static int m##_example(uint8_t *out, struct err *err UNUSED)                                                \
    {                                                                                                           \
        struct pack p;                                                                                          \
                                                                                                                \
        pack_init(&p, out, FRAME_PAYLOAD_MAX);                                                                  \
        for (size_t i = 0; i < ARRAY_LEN(m##_example_value); i++)                                               \
            m##_pack(&p, &m##_example_value[i]);                                                                \
        return p.bad ? -1 : (int)p.len;                                                                         \
    }                                                                                                           \
    static int m##_again(const struct frame *f, uint8_t *out, struct err *err)                                  \
    {                                                                                                           \
        static struct m value;                                                                                  \
        struct unpack u;                                                                                        \
        struct pack p;                                                                                          \
                                                                                                                \
        pack_init(&p, out, FRAME_PAYLOAD_MAX);                                                                  \
        unpack_init(&u, f->data, f->len);                                                                       \
        do {                                                                                                    \
            if (!m##_unpack(&u, &value))                                                                        \
                return err_set(err, ERR_PROTOCOL, "bad item");                                                  \
            m##_pack(&p, &value);                                                                               \
            if (p.bad)                                                                                          \
                abort();                                                                                        \
        } while (u.pos < u.len);                                                                                \
        return (int)p.len;                                                                                      \
    }                                                                                                           \
    static bool m##_kept(void)                                                                                  \
    {                                                                                                           \
        static uint8_t bytes[FRAME_PAYLOAD_MAX];                                                                \
        struct unpack u;                                                                                        \
        bool same = true;                                                                                       \
                                                                                                                \
        unpack_init(&u, bytes, (size_t)m##_example(bytes, NULL));                                               \
        for (size_t i = 0; i < ARRAY_LEN(m##_example_value); i++) {                                             \
            static struct m value;                                                                              \
                                                                                                                \
            memset(&value, 0, sizeof(value));                                                                   \
            same = same && m##_unpack(&u, &value) && memcmp(&value, &m##_example_value[i], sizeof(value)) == 0; \
        }                                                                                                       \
        return same && unpack_end(&u);                                                                          \
    }                                                                                                           \
    struct m

static const struct rt_entry rt_entry_example_value[] = {
    { .kind = 'f', .mode = 0644, .size = 1, .mtime_ns = 2, .name = "file" },
    { .kind = 'l', .mode = 0777, .size = 3, .mtime_ns = 4, .name = "link", .target = "file" },
};
ITEMS(rt_entry);

static const struct rt_change rt_change_example_value[] = {
    { .kind = RT_ADDED, .file = 'f', .size = 1, .path = "a" },
    { .kind = RT_DELETED, .file = 'd', .size = 2, .path = "b/c" },
};
ITEMS(rt_change);

static const struct rt_event rt_event_example_value[] = {
    { .kind = RT_WATCHING, .dir = 1 },
    { .kind = RT_MOVED, .path = "b/c", .from = "a" },
};
ITEMS(rt_event);

#define ROW(m) #m, .example = m##_example, .again = m##_again, .kept = m##_kept

const struct message messages[] = {
    { ROW(rt_hello), .types = { FRAME_HELLO } },
    { ROW(rt_number), .types = { FRAME_CREDIT, FRAME_STARTED } },
    { ROW(rt_resume), .types = { FRAME_RESUME } },
    { ROW(rt_claim), .types = { FRAME_CLAIM, FRAME_PRELOAD_RULES } },
    { ROW(rt_claimed), .types = { FRAME_CLAIMED } },
    { ROW(rt_exec), .types = { FRAME_EXEC } },
    { ROW(rt_signal), .types = { FRAME_SIGNAL } },
    { ROW(rt_resize), .types = { FRAME_RESIZE } },
    { ROW(rt_exit), .types = { FRAME_EXIT } },
    { ROW(rt_error), .types = { FRAME_ERROR, FRAME_J_ERROR } },
    { ROW(rt_path), .types = { FRAME_READ, FRAME_WRITE, FRAME_LIST, FRAME_STAT, FRAME_MKDIR, FRAME_REMOVE,
                               FRAME_TAR_OUT, FRAME_TAR_IN, FRAME_SNAPSHOT, FRAME_CHANGES, FRAME_WATCH } },
    { ROW(rt_move), .types = { FRAME_MOVE } },
    { ROW(rt_done), .types = { FRAME_DONE } },
    { ROW(rt_reset), .types = { FRAME_DONE } },
    { ROW(rt_stats), .types = { FRAME_DONE } },
    { ROW(rt_entry), .items = true, .types = { FRAME_DATA, FRAME_DONE } },
    { ROW(rt_change), .items = true, .types = { FRAME_DATA } },
    { ROW(rt_event), .items = true, .types = { FRAME_DATA } },

    { ROW(jail_zygote), .link = MESSAGE_JAIL, .types = { FRAME_J_ZYGOTE } },
    { ROW(jail_template), .link = MESSAGE_JAIL, .types = { FRAME_J_TEMPLATE } },
    { ROW(jail_create), .link = MESSAGE_JAIL, .types = { FRAME_J_CREATE } },
    { ROW(jail_created), .link = MESSAGE_JAIL, .types = { FRAME_J_CREATED } },
    { ROW(jail_id), .link = MESSAGE_JAIL,
      .types = { FRAME_J_KILL, FRAME_J_FREEZE, FRAME_J_THAW, FRAME_J_STATS, FRAME_J_DESTROY, FRAME_J_ADOPT,
                 FRAME_J_KEEP, FRAME_J_LIST, FRAME_J_DENIALS, FRAME_J_UNWATCH } },
    { ROW(jail_set_limits), .link = MESSAGE_JAIL, .types = { FRAME_J_SET_LIMITS } },
    { ROW(jail_stats), .link = MESSAGE_JAIL, .types = { FRAME_DONE } },
    { ROW(jail_list), .link = MESSAGE_JAIL, .types = { FRAME_DONE } },
    { ROW(jail_event), .link = MESSAGE_JAIL, .types = { FRAME_J_EVENT } },
    { ROW(jail_watch), .link = MESSAGE_JAIL, .types = { FRAME_J_WATCH } },
    { ROW(jail_denial_notice), .link = MESSAGE_JAIL, .types = { FRAME_J_DENIAL_NOTICE } },
    { ROW(jail_denied), .link = MESSAGE_JAIL, .types = { FRAME_J_DENIED } },

    { ROW(egress_listen), .link = MESSAGE_EGRESS, .types = { FRAME_E_LISTEN } },
    { ROW(egress_id), .link = MESSAGE_EGRESS,
      .types = { FRAME_E_UNLISTEN, FRAME_E_UNBIND, FRAME_E_REPORT, FRAME_E_LIST } },
    { ROW(egress_bind), .link = MESSAGE_EGRESS, .types = { FRAME_E_BIND } },
    { ROW(egress_reported), .link = MESSAGE_EGRESS, .types = { FRAME_E_REPORTED } },
    { ROW(egress_listed), .link = MESSAGE_EGRESS, .types = { FRAME_E_LISTED } },
    { ROW(egress_secret_used), .link = MESSAGE_EGRESS, .types = { FRAME_E_SECRET } },
};
const size_t nmessages = ARRAY_LEN(messages);

bool message_has_type(const struct message *m, uint8_t type)
{
    return type != 0 && memchr(m->types, type, sizeof(m->types));
}

static void attack_decoders(const struct frame *f, enum message_link link)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];

    for (size_t i = 0; i < nmessages; i++) {
        struct err err = { 0 };

        if (messages[i].link != link || !message_has_type(&messages[i], f->type))
            continue;
        int n = messages[i].again(f, out, &err);
        if (n < 0 ? err.id != ERR_PROTOCOL : (uint32_t)n != f->len || memcmp(out, f->data, f->len) != 0)
            abort();
    }
}

static void attack_parser(const uint8_t *packet, size_t n)
{
    struct err err = { 0 };
    uint8_t header[FRAME_HEADER];
    struct frame f;

    if (frame_parse(packet, n, &f, &err) < 0)
        return;
    frame_header(header, &f);
    if (memcmp(header, packet, FRAME_HEADER) != 0 || f.data != packet + FRAME_HEADER || f.len != n - FRAME_HEADER)
        abort();
}

void messages_attack(const uint8_t *packet, size_t n, enum message_link link)
{
    attack_parser(packet, n);
    if (n < FRAME_HEADER || n > FRAME_MAX)
        return;
    /* A mutation seldom keeps the length valid; the decoders are tried all the same. */
    struct frame f = { .type = packet[4], .len = (uint32_t)(n - FRAME_HEADER), .data = packet + FRAME_HEADER };
    attack_decoders(&f, link);
}
