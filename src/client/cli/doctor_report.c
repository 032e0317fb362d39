/* Combines three sources: the attack from inside, the receipt, which lists the walls of
 * the sandbox, and for limits the degree to which the host enforces them. A row is held
 * only if all of them agree; a row without an answer is open, because an attack that did
 * not run proves nothing. */
#include "client/cli/doctor_report.h"

#include "client/cli/report.h"

#include "core/base/jsonw.h"
#include "core/base/str.h"
#include "sandbox/walls.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

/* clang-format off */
static const struct doctor_report_row {
    const char *name, *tried;
} doctor_limit_rows[] = {
    { "memoryBytes",     "use twice the memory" },
    { "cpuMillis",       "compute with four processes on 0.05 processors" },
    { "pids",            "start four times the processes" },
    { "openFiles",       "open four times the files" },
    { "fileSizeBytes",   "write a file of four times the size" },
    { "workspaceBytes",  "fill /workspace" },
    { "workspaceInodes", "make too many directories in /workspace" },
    { "tmpBytes",        "fill /tmp" },
    { "tmpInodes",       "make too many directories in /tmp" },
    { "shmBytes",        "fill /dev/shm" },
    { "timeoutMs",       "run longer than the timeout" },
    { "cpuTimeMs",       "use more processor time than the limit" },
    { "lifetimeMs",      "live longer than the lifetime" },
    { "idleTimeoutMs",   "stay idle" },
    { "outputBytes",     "write four times the output" },
};

static const struct doctor_report_row doctor_rate_rows[] = {
    { "ioReadBytesPerSecond",  "--io-read" },
    { "ioWriteBytesPerSecond", "--io-write" },
};
/* clang-format on */

void doctor_report_init(struct doctor_report *f)
{
    size_t n;
    const struct wall *w = walls_all(&n);

    *f = (struct doctor_report){ 0 };
    assert(n + ARRAY_LEN(doctor_limit_rows) <= DOCTOR_FINDINGS_MAX);
    for (size_t i = 0; i < n; i++)
        f->v[f->n++] = (struct doctor_finding){ .name = w[i].name,
                                                .attack = w[i].attack,
                                                .needs_root = w[i].needs_root };
    for (size_t i = 0; i < ARRAY_LEN(doctor_limit_rows); i++)
        f->v[f->n++] = (struct doctor_finding){ .name = doctor_limit_rows[i].name,
                                                .attack = doctor_limit_rows[i].tried,
                                                .limit = true };
}

void doctor_report_rates_init(struct doctor_report *rates)
{
    *rates = (struct doctor_report){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(doctor_rate_rows); i++)
        rates->v[rates->n++] = (struct doctor_finding){ .name = doctor_rate_rows[i].name,
                                                        .attack = doctor_rate_rows[i].tried,
                                                        .limit = true };
}

static struct doctor_finding *doctor_report_find_row(struct doctor_report *f, const char *name, size_t len)
{
    for (size_t i = 0; i < f->n; i++)
        if (strlen(f->v[i].name) == len && memcmp(f->v[i].name, name, len) == 0)
            return &f->v[i];
    return NULL;
}

const struct doctor_finding *doctor_report_find(const struct doctor_report *f, const char *name)
{
    return doctor_report_find_row((struct doctor_report *)(uintptr_t)f, name, strlen(name));
}

/* Parses one line, without the line end. */
static bool doctor_report_read_line(struct doctor_report *f, const char *line, size_t len)
{
    const char *tab = memchr(line, '\t', len);
    struct doctor_finding *one = tab ? doctor_report_find_row(f, line, (size_t)(tab - line)) : NULL;

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
    str_strip_control_chars(one->seen);
    one->answered = true;
    return true;
}

int doctor_report_read(struct doctor_report *f, const char *text, size_t len, struct err *err)
{
    if (len > DOCTOR_PROBE_TEXT_MAX)
        return err_set(err, ERR_PROTOCOL, "cove-probe printed more than expected");
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);

        if (!end || !doctor_report_read_line(f, text + at, (size_t)(end - text) - at))
            return err_set(err, ERR_PROTOCOL, "cove-probe printed a malformed answer at byte %zu", at);
        at = (size_t)(end - text) + 1;
    }
    return 0;
}

void doctor_report_set_answer(struct doctor_report *f, const char *name, bool held, const char *fmt, ...)
{
    struct doctor_finding *one = doctor_report_find_row(f, name, strlen(name));
    va_list ap;

    if (one->answered && held)
        return;
    one->answered = true;
    one->broken = !held;
    va_start(ap, fmt);
    vsnprintf(one->seen, sizeof(one->seen), fmt, ap);
    va_end(ap);
}

static void doctor_report_apply_walls(struct doctor_report *f, const struct receipt *r)
{
    size_t n;
    const struct wall *w = walls_all(&n);

    for (size_t i = 0; i < n; i++) {
        struct doctor_finding *one = doctor_report_find_row(f, w[i].name, strlen(w[i].name));

        if (one && ((w[i].outside & ~r->host_walls) || (w[i].inside & ~r->inside_walls)))
            one->missing = true;
    }
}

void doctor_report_apply_receipt(struct doctor_report *f, const struct receipt *r, uint64_t limits)
{
    doctor_report_apply_walls(f, r);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const char *name = limit_info((enum limit)i)->name;
        struct doctor_finding *one = limits >> i & 1 ? doctor_report_find_row(f, name, strlen(name)) : NULL;

        if (one)
            one->enforced = r->enforced[i];
    }
    f->rootless = r->rootless;
    f->landlock_abi = r->landlock_abi;
    memcpy(f->cgroup, r->cgroup, sizeof(f->cgroup));
}

void doctor_report_check_operator_limits(struct doctor_report *f, const struct operator_limits *floor,
                                         const struct receipt *r, const struct limits *limits)
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
    if (floor->requires_every_wall && r->rootless) {
        buf_addf(&says, "%swalls that only root can raise", comma);
        comma = ", ";
    }
    for (int i = 0; i < LIMIT_COUNT; i++)
        if (floor->must_enforce >> i & 1 && r->enforced[i] < 2 && !limit_is_unlimited((enum limit)i, limits->v[i])) {
            buf_addf(&says, "%s%s fully enforced", comma, limit_info((enum limit)i)->name);
            comma = ", ";
        }
    f->operator_limits_unmet = comma[0] == ',';
    if (!f->operator_limits_unmet)
        buf_adds(&says, ": met; they apply to every run here");
    snprintf(f->operator_limits_text, sizeof(f->operator_limits_text), "%s", says.data);
    str_strip_control_chars(f->operator_limits_text);
}

/* --- the verdict --- */

enum doctor_finding_state doctor_finding_get_state(const struct doctor_report *f, const struct doctor_finding *one)
{
    bool broken = one->broken || !one->answered || one->missing;

    if (one->limit && one->enforced < 2)
        return one->enforced ? DOCTOR_FINDING_PARTIAL : DOCTOR_FINDING_OPEN;
    if (!broken)
        return DOCTOR_FINDING_HELD;
    return one->needs_root && f->rootless ? DOCTOR_FINDING_PARTIAL : DOCTOR_FINDING_OPEN;
}

/* Open, although the receipt reports the wall or limit as present. */
static bool doctor_finding_is_unexpected(const struct doctor_report *f, const struct doctor_finding *one)
{
    return doctor_finding_get_state(f, one) == DOCTOR_FINDING_OPEN && !(one->limit && one->enforced < 2);
}

void doctor_report_add_rates(struct doctor_report *f, const struct doctor_report *rates)
{
    auto_buf says = { 0 };

    for (size_t i = 0; i < rates->n; i++) {
        const struct doctor_finding *one = &rates->v[i];
        bool claimed = one->enforced == 2, broken = one->answered && one->broken;

        buf_addf(&says, "%s%s %s", i ? "; " : "", one->attack,
                 !one->enforced      ? "has no effect here"
                 : !one->answered    ? "was not tested"
                 : broken && claimed ? "DID NOT HOLD"
                 : claimed           ? "held"
                 : broken            ? "did not hold here, and is not reported as enforced"
                                     : "held for synchronous writes");
        if (one->enforced && one->answered)
            buf_addf(&says, " (%s)", one->seen);
        f->rates_broken = f->rates_broken || (claimed && broken);
    }
    snprintf(f->disk_rates, sizeof(f->disk_rates), "%s", says.data);
}

int doctor_report_status(const struct doctor_report *f)
{
    int status = f->operator_limits_unmet ? DOCTOR_PARTIAL : DOCTOR_COMPLETE;

    if (f->rates_broken || f->network_broken)
        return DOCTOR_BROKEN;

    for (size_t i = 0; i < f->n; i++) {
        if (doctor_finding_is_unexpected(f, &f->v[i]))
            return DOCTOR_BROKEN;
        if (doctor_finding_get_state(f, &f->v[i]) != DOCTOR_FINDING_HELD)
            status = DOCTOR_PARTIAL;
    }
    return status;
}

static const char *doctor_finding_state_name(enum doctor_finding_state s)
{
    return s == DOCTOR_FINDING_HELD ? "held" : s == DOCTOR_FINDING_PARTIAL ? "partial" : "open";
}

/* Returns NULL if nothing is missing. */
static const char *doctor_finding_fix(const struct doctor_report *f, const struct doctor_finding *one)
{
    if (doctor_finding_get_state(f, one) == DOCTOR_FINDING_HELD)
        return NULL;
    if (doctor_finding_is_unexpected(f, one))
        return "run no untrusted code on this host, and report this line with the versions of cove and the kernel";
    if (f->rootless)
        return one->limit ? "log in through systemd, whose user manager gives cove a control group (cgroup v2), or run "
                            "cove as root"
                          : "run cove as root, which can assign other uids";
    return "mount the control group controllers memory, pids and cpu, and give cove write access";
}

static const char *doctor_finding_seen(const struct doctor_finding *one)
{
    if (one->answered && !one->broken && one->missing)
        return "the receipt does not list this wall";
    return one->answered ? one->seen : "the attack gave no answer";
}

static void doctor_report_summary(const struct doctor_report *f, struct buf *out)
{
    int status = doctor_report_status(f);
    size_t walls = 0;
    const char *comma = "";

    for (size_t i = 0; i < f->n; i++)
        walls += !f->v[i].limit;
    if (status == DOCTOR_COMPLETE) {
        buf_addf(out, "standard is complete on this host: %zu walls and %zu limits held", walls, f->n - walls);
        return;
    }
    if (f->operator_limits_unmet && status == DOCTOR_PARTIAL) {
        buf_adds(out, "no run can start on this host: it does not meet the operator limits");
        return;
    }
    buf_adds(out, "standard is not complete on this host: ");
    for (size_t i = 0; i < f->n; i++) {
        const struct doctor_finding *one = &f->v[i];

        if (status == DOCTOR_BROKEN ? !doctor_finding_is_unexpected(f, one)
                                    : doctor_finding_get_state(f, one) == DOCTOR_FINDING_HELD)
            continue;
        buf_addf(out, "%s%s", comma, one->name);
        comma = ", ";
    }
    if (f->rates_broken)
        buf_addf(out, "%sdisk rates", comma);
    if (f->network_broken)
        buf_addf(out, "%snetwork", f->rates_broken ? ", " : comma);
    buf_adds(out, status == DOCTOR_BROKEN ? " did not hold" : " cannot be enforced in full here; all other walls held");
}

void doctor_report_print(const struct doctor_report *f, struct buf *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct doctor_finding *one = &f->v[i];
        enum doctor_finding_state s = doctor_finding_get_state(f, one);

        buf_addf(out, "%-8s %-18s %s", doctor_finding_state_name(s), one->name, one->attack);
        if (s != DOCTOR_FINDING_HELD)
            buf_addf(out, "\n         seen: %s\n         fix:  %s", doctor_finding_seen(one),
                     doctor_finding_fix(f, one));
        buf_adds(out, "\n");
    }
    if (f->disk_rates[0])
        buf_addf(out, "also     %-18s %s\n", "disk rates", f->disk_rates);
    if (f->network[0])
        buf_addf(out, "also     %-18s %s\n", "network", f->network);
    doctor_drivers_print(&f->drivers, out);
    if (f->operator_limits_text[0])
        buf_addf(out, "also     %-18s %s\n", "floor", f->operator_limits_text);
    doctor_report_summary(f, out);
    buf_adds(out, "\n");
}

static void doctor_report_json_rows(const struct doctor_report *f, const char *key, bool limit, struct jsonw *w)
{
    jsonw_key(w, key);
    jsonw_array(w);
    for (size_t i = 0; i < f->n; i++) {
        const struct doctor_finding *one = &f->v[i];

        if (one->limit != limit)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "name", one->name);
        jsonw_kstr(w, "state", doctor_finding_state_name(doctor_finding_get_state(f, one)));
        jsonw_kstr(w, "tried", one->attack);
        jsonw_kstr(w, "seen", doctor_finding_seen(one));
        if (doctor_finding_fix(f, one))
            jsonw_kstr(w, "fix", doctor_finding_fix(f, one));
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

void doctor_report_json(const struct doctor_report *f, struct buf *out)
{
    auto_buf text = { 0 };
    struct jsonw w;

    doctor_report_summary(f, &text);
    jsonw_init(&w, out, report_json_indent());
    jsonw_object(&w);
    jsonw_kstr(&w, "level", "standard");
    doctor_drivers_json(&f->drivers, &w);
    jsonw_kbool(&w, "complete", doctor_report_status(f) == DOCTOR_COMPLETE);
    jsonw_ki64(&w, "exitStatus", doctor_report_status(f));
    jsonw_kstr(&w, "summary", text.data);
    jsonw_kbool(&w, "rootless", f->rootless);
    jsonw_kstr(&w, "cgroup", f->cgroup);
    jsonw_ku64(&w, "landlockAbi", f->landlock_abi);
    if (f->disk_rates[0])
        jsonw_kstr(&w, "diskRates", f->disk_rates);
    if (f->network[0]) {
        jsonw_key(&w, "network");
        jsonw_object(&w);
        jsonw_kstr(&w, "carrier", f->network_carrier);
        jsonw_kbool(&w, "held", !f->network_broken);
        jsonw_kstr(&w, "says", f->network);
        jsonw_end_object(&w);
    }
    if (f->operator_limits_text[0]) {
        jsonw_key(&w, "floor");
        jsonw_object(&w);
        jsonw_kbool(&w, "met", !f->operator_limits_unmet);
        jsonw_kstr(&w, "says", f->operator_limits_text);
        jsonw_end_object(&w);
    }
    doctor_report_json_rows(f, "walls", false, &w);
    doctor_report_json_rows(f, "limits", true, &w);
    jsonw_end_object(&w);
    buf_adds(out, "\n");
}
