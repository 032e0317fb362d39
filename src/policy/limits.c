/* All functions here work on the table. A set of processors is a mask of the first 64, because a
 * limit has 64 bits; on a host with more, CPU time can still be limited, but programs cannot be
 * pinned to the processors above 63.
 *
 * Invariants:
 * 1. limits_default() passes limits_check().
 * 2. limits_fit() changes only limits that the user did not choose, so a chosen value is either
 *    honoured or refused, never changed.
 * 3. If a check fails after limits_fit(), it names a limit that the user chose. */
#include "policy/limits.h"

#include "core/base/str.h"

#include <stdio.h>

#define NOTHING false
#define UNLIMITED true

static const struct limit_info limit_infos[LIMIT_COUNT] = {
#define LIMIT(id, name, flag, unit, dflt, min, max, zero, action, help) \
    [LIMIT_##id] = { name, flag, UNIT_##unit, dflt, min, max, zero, action, help },
#include "policy/limits.def"
#undef LIMIT
};

/* Stored in memory-backed file systems, so they count against LIMIT_MEMORY. */
static const enum limit memory_backed_limits[] = { LIMIT_WORKSPACE, LIMIT_TMP, LIMIT_SHM };

const struct limit_info *limit_info(enum limit l)
{
    return &limit_infos[l];
}

bool limit_is_unlimited(enum limit l, uint64_t value)
{
    return value == 0 && limit_infos[l].zero_unlimited;
}

void limit_set_enforcement(struct limit_enforcements *s, enum limit l, enum limit_enforcement hold,
                           enum limit_reason why)
{
    s->enforcement[l] = (uint8_t)hold;
    s->reason[l] = (uint8_t)why;
}

const char *limit_reason_text(unsigned why)
{
    static const char *const texts[REASON_COUNT] = {
        [REASON_NO_CGROUP] = "it needs a cgroup, which a plain user does not have",
        [REASON_EACH_PROCESS] = "without a cgroup it applies to each process separately",
        [REASON_NO_CONTROLLER] = "the host has no cgroup controller for it",
        [REASON_SWAP_UNCOUNTED] = "the kernel does not count swap",
        [REASON_LENT_DIRECTORY] = "the mounted directory has the quota of its own file system",
        [REASON_LATE_WRITES] =
            "delayed writes of the kernel are not slowed; that needs cgroup v2, and ext4, xfs, btrfs or f2fs",
        [REASON_NO_DISK] = "a directory of the sandbox is not on a disk of this host that can be slowed",
        [REASON_DISK_REFUSED] = "a disk of the host does not support such a limit",
    };

    return why < REASON_COUNT ? texts[why] : NULL;
}

void limits_default(struct limits *l)
{
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        l->v[i] = limit_infos[i].dflt;
}

/* "0-1,3": numbers and ranges, each below 64, in any order. */
static bool limit_parse_cpuset(const char *p, uint64_t *ret)
{
    uint64_t mask = 0;

    do {
        uint32_t from, to;

        if (!str_eat_u32(&p, 63, &from))
            return false;
        to = from;
        if (str_eat(&p, "-") && (!str_eat_u32(&p, 63, &to) || to < from))
            return false;
        for (uint32_t cpu = from; cpu <= to; cpu++)
            mask |= 1ull << cpu;
    } while (str_eat(&p, ","));
    if (*p)
        return false;
    *ret = mask;
    return true;
}

static char *limit_print_cpuset(uint64_t mask, char buf[LIMIT_TEXT])
{
    size_t len = 0;

    buf[0] = '\0';
    for (unsigned from = 0; from < 64; from++) {
        unsigned to = from;

        if (!(mask >> from & 1))
            continue;
        while (to < 63 && mask >> (to + 1) & 1)
            to++;
        len += (size_t)snprintf(buf + len, LIMIT_TEXT - len, to == from ? "%s%u" : "%s%u-%u", len ? "," : "", from, to);
        from = to;
    }
    return buf;
}

static bool limit_parse_unit(enum limit_unit unit, const char *text, uint64_t *ret)
{
    switch (unit) {
    case UNIT_BYTES:
        return str_to_bytes(text, ret);
    case UNIT_COUNT:
        return str_to_u64(text, UINT64_MAX, ret);
    case UNIT_MS:
        return str_to_ms(text, ret);
    case UNIT_MILLICPU:
        return str_to_millis(text, ret);
    case UNIT_CPUSET:
        return limit_parse_cpuset(text, ret);
    }
    return false;
}

static const char *limit_unit_example(enum limit_unit unit)
{
    switch (unit) {
    case UNIT_BYTES:
        return "a size such as 256M or 1G";
    case UNIT_COUNT:
        return "a whole number";
    case UNIT_MS:
        return "a time with its unit, such as 1500ms, 30s or 5m";
    case UNIT_MILLICPU:
        return "a number of processors such as 0.5 or 2";
    case UNIT_CPUSET:
        return "a list of processors below 64 such as 0-1,3";
    }
    return "a value";
}

static int limit_check_range(enum limit l, uint64_t value, struct err *err)
{
    const struct limit_info *info = &limit_infos[l];
    char got[LIMIT_TEXT], bound[LIMIT_TEXT];

    if (value >= info->min && value <= info->max)
        return 0;
    bool low = value < info->min;
    return err_set(err, ERR_INVALID, "%s of %s is %s than %s", info->name, limit_print(l, value, got),
                   low ? "less" : "more", limit_print(l, low ? info->min : info->max, bound));
}

int limit_parse(enum limit l, const char *text, uint64_t *ret, struct err *err)
{
    const struct limit_info *info = &limit_infos[l];
    uint64_t value;

    if (info->zero_unlimited && str_eq(text, "unlimited"))
        value = 0;
    else if (!limit_parse_unit(info->unit, text, &value))
        return err_set(err, ERR_INVALID, "%s '%.64s' is not %s", info->name, text, limit_unit_example(info->unit));
    if (limit_check_range(l, value, err) < 0)
        return -1;
    *ret = value;
    return 0;
}

int limit_parse_flag(enum limit l, const char *text, uint64_t *ret, struct err *err)
{
    enum limit_unit unit = limit_infos[l].unit;
    char with_unit[72];
    uint64_t v;
    bool bare = str_to_millis(text, &v) && snprintf(with_unit, sizeof(with_unit), "%.64s%c", text,
                                                    unit == UNIT_MS ? 's' : 'M') < (int)sizeof(with_unit);

    if (bare && unit == UNIT_MS)
        return limit_parse(l, with_unit, ret, err);
    if (limit_parse(l, text, ret, err) == 0)
        return 0;
    if (bare && unit == UNIT_BYTES && limit_parse(l, with_unit, &v, NULL) == 0) {
        struct err why = *err;

        err_set(err, why.id, "%.160s; did you mean %s?", why.msg, with_unit);
    }
    return -1;
}

char *limit_print(enum limit l, uint64_t value, char buf[LIMIT_TEXT])
{
    if (limit_is_unlimited(l, value)) {
        (void)str_copy(buf, LIMIT_TEXT, "unlimited");
        return buf;
    }
    switch (limit_infos[l].unit) {
    case UNIT_BYTES:
        return str_bytes(value, buf);
    case UNIT_COUNT:
        snprintf(buf, LIMIT_TEXT, "%" PRIu64, value);
        return buf;
    case UNIT_MS:
        return str_ms(value, buf);
    case UNIT_MILLICPU:
        if (value % 1000 == 0)
            snprintf(buf, LIMIT_TEXT, "%" PRIu64, value / 1000);
        else
            snprintf(buf, LIMIT_TEXT, "%" PRIu64 ".%03u", value / 1000, (unsigned)(value % 1000));
        return buf;
    case UNIT_CPUSET:
        return limit_print_cpuset(value, buf);
    }
    buf[0] = '\0';
    return buf;
}

/* Divides the memory limit among the file systems whose size the user did not choose, in proportion
 * to their defaults. A quarter of the memory remains for the processes, as with the defaults. */
static void limits_fit_memory(struct limits *l, uint64_t chosen)
{
    uint64_t room = l->v[LIMIT_MEMORY] - l->v[LIMIT_MEMORY] / 4;
    uint64_t free_sum = 0;

    for (size_t i = 0; i < ARRAY_LEN(memory_backed_limits); i++) {
        enum limit m = memory_backed_limits[i];

        if (chosen >> m & 1)
            room -= min_u64(room, l->v[m]);
        else
            free_sum += l->v[m];
    }
    if (free_sum <= room)
        return;
    for (size_t i = 0; i < ARRAY_LEN(memory_backed_limits); i++) {
        enum limit m = memory_backed_limits[i];

        if (chosen >> m & 1)
            continue;
        uint64_t share = (uint64_t)((unsigned __int128)l->v[m] * room / free_sum) & ~(uint64_t)4095;
        l->v[m] = max_u64(share, limit_infos[m].min);
    }
}

void limits_fit(struct limits *l, uint64_t chosen)
{
    limits_fit_memory(l, chosen);
    if (l->v[LIMIT_WALL] > l->v[LIMIT_LIFETIME]) {
        if (!(chosen & LIMIT_BIT(LIFETIME)))
            l->v[LIMIT_LIFETIME] = l->v[LIMIT_WALL];
        else if (!(chosen & LIMIT_BIT(WALL)))
            l->v[LIMIT_WALL] = l->v[LIMIT_LIFETIME];
    }
}

int limits_check(const struct limits *l, struct err *err)
{
    char have[LIMIT_TEXT], need[LIMIT_TEXT];
    uint64_t sum = 0;

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (limit_check_range((enum limit)i, l->v[i], err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(memory_backed_limits); i++)
        sum += l->v[memory_backed_limits[i]]; /* each is below 2^50 by its range, so the sum cannot overflow */
    if (sum > l->v[LIMIT_MEMORY])
        return err_set(err, ERR_INVALID,
                       "/workspace, /tmp and /dev/shm may hold %s together, but the memory limit is only %s",
                       str_bytes(sum, need), str_bytes(l->v[LIMIT_MEMORY], have));
    return 0;
}
