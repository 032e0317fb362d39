/* Three sources meet here: the attack from inside, the sandbox's own word about its walls (the receipt), and for limits
 * how far the host lets them be enforced. A row is held only when all of them agree; a row without an answer is open,
 * because an attack that was not made proves nothing. */
#include "cli/findings.h"

#include "base/jsonw.h"
#include "base/str.h"
#include "engine/walls.h"

#include <stdarg.h>
#include <stdio.h>

/* clang-format off */
static const struct row {
    const char *name, *tried;
} wall_rows[] = {
    { "user_namespace",    "become root, make a user namespace, find more users in uid_map" },
    { "plain_user",        "setresuid and setresgid to 0" },
    { "unique_uid",        "be the user who started it, or the user of another sandbox" },
    { "no_groups",         "keep or gain groups" },
    { "mount_namespace",   "see directories of the host, mount, unmount" },
    { "read_only_root",    "write to /, /etc and /usr" },
    { "masked_proc",       "read kcore, keys, kmsg and others of /proc, open its controls for writing" },
    { "devices",           "find a device of the host, make one" },
    { "landlock",          "open a file that only Landlock protects" },
    { "pid_namespace",     "see and signal processes of the host" },
    { "hidden_init",       "see PID 1, its memory, environment and descriptors" },
    { "ipc_namespace",     "see shared memory of the host" },
    { "uts_namespace",     "see and change the host's name" },
    { "cgroup_namespace",  "see the host's control groups" },
    { "network_namespace", "connect to a port and to an abstract socket of the host" },
    { "no_interfaces",     "find an interface" },
    { "no_routes",         "connect to addresses of the world, of a cloud's metadata, of a private network" },
    { "no_capabilities",   "find a capability, chroot" },
    { "secure_bits",       "unlock the securebits" },
    { "no_new_privileges", "clear no_new_privs, find a place where set-id bits count" },
    { "seccomp",           "unshare, io_uring_setup, perf_event_open" },
    { "own_keyring",       "add_key, keyctl" },
    { "descriptors",       "find a descriptor that cove left open" },
    { "environment",       "find a variable of the caller" },
};

static const struct row limit_rows[] = {
    { "memoryBytes",     "use twice the memory" },
    { "cpuMillis",       "compute with four processes on a twentieth of a processor" },
    { "pids",            "start four times the processes" },
    { "openFiles",       "open four times the files" },
    { "fileSizeBytes",   "write a file of four times the size" },
    { "workspaceBytes",  "fill /workspace" },
    { "workspaceInodes", "make too many directories in /workspace" },
    { "tmpBytes",        "fill /tmp" },
    { "tmpInodes",       "make too many directories in /tmp" },
    { "shmBytes",        "fill /dev/shm" },
    { "timeoutMs",       "run longer than the clock allows" },
    { "cpuTimeMs",       "compute for longer than the processor time allows" },
    { "lifetimeMs",      "live longer than the sandbox may" },
    { "idleTimeoutMs",   "stay, with nothing to do" },
    { "outputBytes",     "write four times the output" },
};

static const struct row rate_rows[] = {
    { "ioReadBytesPerSecond",  "--io-read" },
    { "ioWriteBytesPerSecond", "--io-write" },
};
/* clang-format on */

static bool demands_root(const char *name)
{
    size_t n;
    const struct wall *w = walls_outside(&n);

    for (size_t i = 0; i < n; i++)
        if (w[i].needs_root && str_eq(w[i].name, name))
            return true;
    w = walls_inside(&n);
    for (size_t i = 0; i < n; i++)
        if (w[i].needs_root && str_eq(w[i].name, name))
            return true;
    return false;
}

void findings_init(struct findings *f)
{
    _Static_assert(ARRAY_LEN(wall_rows) + ARRAY_LEN(limit_rows) <= FINDINGS_MAX, "every row has a place");

    *f = (struct findings){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(wall_rows); i++)
        f->v[f->n++] = (struct finding){ .name = wall_rows[i].name,
                                         .tried = wall_rows[i].tried,
                                         .needs_root = demands_root(wall_rows[i].name) };
    for (size_t i = 0; i < ARRAY_LEN(limit_rows); i++)
        f->v[f->n++] = (struct finding){ .name = limit_rows[i].name, .tried = limit_rows[i].tried, .limit = true };
}

void findings_rates_init(struct findings *rates)
{
    *rates = (struct findings){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(rate_rows); i++)
        rates->v[rates->n++] = (struct finding){ .name = rate_rows[i].name,
                                                 .tried = rate_rows[i].tried,
                                                 .limit = true };
}

static struct finding *find(struct findings *f, const char *name, size_t len)
{
    for (size_t i = 0; i < f->n; i++)
        if (strlen(f->v[i].name) == len && memcmp(f->v[i].name, name, len) == 0)
            return &f->v[i];
    return NULL;
}

const struct finding *findings_find(const struct findings *f, const char *name)
{
    return find((struct findings *)(uintptr_t)f, name, strlen(name));
}

/* One line, without its end. */
static bool read_line(struct findings *f, const char *line, size_t len)
{
    const char *tab = memchr(line, '\t', len);
    struct finding *one = tab ? find(f, line, (size_t)(tab - line)) : NULL;

    if (!one || one->answered || memchr(line, '\0', len))
        return false;
    size_t left = len - (size_t)(tab + 1 - line);
    const char *word = tab + 1;
    if (left < 5 || word[4] != '\t' || left - 5 == 0 || left - 5 >= sizeof(one->seen))
        return false;
    if (memcmp(word, "open", 4) == 0)
        one->broken = true;
    else if (memcmp(word, "held", 4) != 0)
        return false;
    memcpy(one->seen, word + 5, left - 5);
    one->seen[left - 5] = '\0';
    str_tame(one->seen);
    one->answered = true;
    return true;
}

int findings_read(struct findings *f, const char *text, size_t len, struct err *err)
{
    if (len > FINDINGS_TEXT)
        return err_set(err, ERR_PROTOCOL, "cove-probe said more than it has to say");
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);

        if (!end || !read_line(f, text + at, (size_t)(end - text) - at))
            return err_set(err, ERR_PROTOCOL, "cove-probe gave an answer that is none, at byte %zu", at);
        at = (size_t)(end - text) + 1;
    }
    return 0;
}

void findings_answer(struct findings *f, const char *name, bool held, const char *fmt, ...)
{
    struct finding *one = find(f, name, strlen(name));
    va_list ap;

    if (one->answered && held)
        return;
    one->answered = true;
    one->broken = !held;
    va_start(ap, fmt);
    vsnprintf(one->seen, sizeof(one->seen), fmt, ap);
    va_end(ap);
}

static void weigh_walls(struct findings *f, const struct wall *w, size_t n, uint32_t found)
{
    for (size_t i = 0; i < n; i++) {
        struct finding *one = find(f, w[i].name, strlen(w[i].name));

        if (one && !(found & w[i].bit))
            one->missing = true;
    }
}

void findings_weigh(struct findings *f, const struct receipt *r, uint64_t limits)
{
    size_t n;
    const struct wall *w = walls_outside(&n);

    weigh_walls(f, w, n, r->host_walls);
    w = walls_inside(&n);
    weigh_walls(f, w, n, r->inside_walls);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const char *name = limit_info((enum limit)i)->name;
        struct finding *one = limits >> i & 1 ? find(f, name, strlen(name)) : NULL;

        if (one)
            one->enforced = r->enforced[i];
    }
    f->rootless = receipt_rootless(r);
    f->landlock_abi = r->landlock_abi;
    memcpy(f->cgroup, r->cgroup, sizeof(f->cgroup));
}

void findings_floor(struct findings *f, const struct floor *floor, const struct receipt *r, const struct limits *limits)
{
    const char *comma = ": not met, every run is refused: ";
    auto_buf says = { 0 };

    if (!floor->file)
        return;
    buf_addf(&says, "%.100s", floor->file);
    if (floor->level > r->level) {
        buf_addf(&says, "%slevel %s", comma, level_name(floor->level));
        comma = ", ";
    }
    if (floor->every_wall && receipt_rootless(r)) {
        buf_addf(&says, "%swalls that only root can raise", comma);
        comma = ", ";
    }
    for (int i = 0; i < LIMIT_COUNT; i++)
        if (floor->enforce >> i & 1 && r->enforced[i] < 2 && !limit_unlimited((enum limit)i, limits->v[i])) {
            buf_addf(&says, "%s%s enforced whole", comma, limit_info((enum limit)i)->name);
            comma = ", ";
        }
    f->floor_unmet = comma[0] == ',';
    if (!f->floor_unmet)
        buf_adds(&says, ": met; it holds for every run here");
    snprintf(f->floor, sizeof(f->floor), "%s", says.data);
    str_tame(f->floor);
}

/* --- the verdict --- */

enum finding_state finding_state(const struct findings *f, const struct finding *one)
{
    bool broken = one->broken || !one->answered || one->missing;

    if (one->limit && one->enforced < 2)
        return one->enforced ? FINDING_PARTIAL : FINDING_OPEN;
    if (!broken)
        return FINDING_HELD;
    return one->needs_root && f->rootless ? FINDING_PARTIAL : FINDING_OPEN;
}

/* Open although nobody said that it would be. */
static bool unexpected(const struct findings *f, const struct finding *one)
{
    return finding_state(f, one) == FINDING_OPEN && !(one->limit && one->enforced < 2);
}

void findings_rates(struct findings *f, const struct findings *rates)
{
    auto_buf says = { 0 };

    for (size_t i = 0; i < rates->n; i++) {
        const struct finding *one = &rates->v[i];
        bool claimed = one->enforced == 2, broken = one->answered && one->broken;

        buf_addf(&says, "%s%s %s", i ? "; " : "", one->tried,
                 !one->enforced      ? "holds nothing here"
                 : !one->answered    ? "was not tried"
                 : broken && claimed ? "DID NOT HOLD"
                 : claimed           ? "held"
                 : broken            ? "did not hold here, and is not called enforced"
                                     : "held, for programs that wait for the disk");
        if (one->enforced && one->answered)
            buf_addf(&says, " (%s)", one->seen);
        f->rates_broken = f->rates_broken || (claimed && broken);
    }
    snprintf(f->disk_rates, sizeof(f->disk_rates), "%s", says.data);
}

int findings_status(const struct findings *f)
{
    int status = f->floor_unmet ? FINDINGS_PARTIAL : FINDINGS_COMPLETE;

    if (f->rates_broken)
        return FINDINGS_BROKEN;

    for (size_t i = 0; i < f->n; i++) {
        if (unexpected(f, &f->v[i]))
            return FINDINGS_BROKEN;
        if (finding_state(f, &f->v[i]) != FINDING_HELD)
            status = FINDINGS_PARTIAL;
    }
    return status;
}

static const char *state_name(enum finding_state s)
{
    return s == FINDING_HELD ? "held" : s == FINDING_PARTIAL ? "partial" : "open";
}

/* NULL when nothing is missing. */
static const char *fix(const struct findings *f, const struct finding *one)
{
    if (finding_state(f, one) == FINDING_HELD)
        return NULL;
    if (unexpected(f, one))
        return "run no untrusted code on this host, and report this line with the version of cove and of the kernel";
    if (f->rootless)
        return one->limit ? "log in through systemd, whose user manager gives cove a control group (cgroup v2), or run "
                            "cove as root"
                          : "run cove as root, which has user ids to give away";
    return "mount the control group controllers memory, pids and cpu, and let cove write there";
}

static const char *seen(const struct finding *one)
{
    if (one->answered && !one->broken && one->missing)
        return "the sandbox itself says that this wall is not up";
    return one->answered ? one->seen : "there was no answer";
}

static void sentence(const struct findings *f, struct buf *out)
{
    int status = findings_status(f);
    size_t walls = 0;
    const char *comma = "";

    for (size_t i = 0; i < f->n; i++)
        walls += !f->v[i].limit;
    if (status == FINDINGS_COMPLETE) {
        buf_addf(out, "standard is complete on this host: %zu walls and %zu limits held", walls, f->n - walls);
        return;
    }
    if (f->floor_unmet && status == FINDINGS_PARTIAL) {
        buf_adds(out, "no run can start on this host, because the operator demands more than it has");
        return;
    }
    buf_adds(out, "standard is not complete on this host, because ");
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *one = &f->v[i];

        if (status == FINDINGS_BROKEN ? !unexpected(f, one) : finding_state(f, one) == FINDING_HELD)
            continue;
        buf_addf(out, "%s%s", comma, one->name);
        comma = ", ";
    }
    if (f->rates_broken)
        buf_addf(out, "%sdisk rates", comma);
    buf_adds(out, status == FINDINGS_BROKEN ? " did not hold" : " cannot be had in full here; all other walls held");
}

void findings_print(const struct findings *f, struct buf *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *one = &f->v[i];
        enum finding_state s = finding_state(f, one);

        buf_addf(out, "%-8s %-18s %s", state_name(s), one->name, one->tried);
        if (s != FINDING_HELD)
            buf_addf(out, "\n         seen: %s\n         fix:  %s", seen(one), fix(f, one));
        buf_adds(out, "\n");
    }
    if (f->disk_rates[0])
        buf_addf(out, "also     %-18s %s\n", "disk rates", f->disk_rates);
    if (f->floor[0])
        buf_addf(out, "also     %-18s %s\n", "floor", f->floor);
    sentence(f, out);
    buf_adds(out, "\n");
}

static void json_rows(const struct findings *f, const char *key, bool limit, struct jsonw *w)
{
    jsonw_key(w, key);
    jsonw_array(w);
    for (size_t i = 0; i < f->n; i++) {
        const struct finding *one = &f->v[i];

        if (one->limit != limit)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "name", one->name);
        jsonw_kstr(w, "state", state_name(finding_state(f, one)));
        jsonw_kstr(w, "tried", one->tried);
        jsonw_kstr(w, "seen", seen(one));
        if (fix(f, one))
            jsonw_kstr(w, "fix", fix(f, one));
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

void findings_json(const struct findings *f, struct buf *out)
{
    auto_buf text = { 0 };
    struct jsonw w;

    sentence(f, &text);
    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "level", "standard");
    jsonw_kbool(&w, "complete", findings_status(f) == FINDINGS_COMPLETE);
    jsonw_ki64(&w, "exitStatus", findings_status(f));
    jsonw_kstr(&w, "summary", text.data);
    jsonw_kbool(&w, "rootless", f->rootless);
    jsonw_kstr(&w, "cgroup", f->cgroup);
    jsonw_ku64(&w, "landlockAbi", f->landlock_abi);
    if (f->disk_rates[0])
        jsonw_kstr(&w, "diskRates", f->disk_rates);
    if (f->floor[0]) {
        jsonw_key(&w, "floor");
        jsonw_object(&w);
        jsonw_kbool(&w, "met", !f->floor_unmet);
        jsonw_kstr(&w, "says", f->floor);
        jsonw_end_object(&w);
    }
    json_rows(f, "walls", false, &w);
    json_rows(f, "limits", true, &w);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}
