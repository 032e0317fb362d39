/* Compiles the table to BPF, from the end of the program to its beginning.
 *
 * BPF jumps only forward, and a conditional jump at most 255 instructions. So the program is built
 * backwards: every jump target already exists and its distance is known. Where a target is too far,
 * a copy of the return (or, for a rule, an unconditional jump, which may be long) is inserted.
 * There is no second pass and no patching. A position is the distance from the end of the program,
 * which does not change while instructions are added in front; 1 is the last instruction.
 *
 * From the front, the finished program is: kill a foreign architecture; a binary tree over the
 * numbers; the argument rules; returns between them. When a filter is installed, the kernel runs it
 * for every number it knows until the filter either returns or reads an argument, to learn which
 * calls are always allowed. The cost is the sum of the path lengths in the tree. Adjacent numbers
 * with the same action are one leaf, and each node divides the numbers (not the leaves) below it as
 * evenly as possible, so that a wide range is near the root. Rules cost nothing there and may be
 * linear lists.
 *
 * x32 numbers need no instruction: with bit 30 set they are in the last range, that of unknown
 * numbers. */
#include "policy/syscall_table.h"

#include <assert.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#define JUMP_MAX 255u
#define RETURNS_MAX 16

/* Offset of the lower half of an argument; both possible architectures are little-endian. */
#define ARG_OFFSET(i) ((uint32_t)(offsetof(struct seccomp_data, args) + 8u * (i)))

struct filter_program {
    struct sock_filter *end; /* one past the last instruction */
    size_t n;
    bool full;
    uint32_t eperm;          /* the return value where the table says EPERM */
    size_t rule[RULE_COUNT]; /* position of a rule's first instruction; 0 before it is written */
    struct {
        uint32_t value;
        size_t at; /* the copy nearest to the front */
    } returns[RETURNS_MAX];
    size_t nreturns;
};

static size_t filter_push(struct filter_program *p, uint16_t code, uint32_t k, size_t jt, size_t jf)
{
    if (p->n == FILTER_MAX) {
        p->full = true;
        return p->n;
    }
    p->n++;
    p->end[-(ptrdiff_t)p->n] = (struct sock_filter){ code, (uint8_t)jt, (uint8_t)jf, k };
    return p->n;
}

/* Returns a position that a conditional jump can reach and that leads to `to`. One instruction may
 * still be inserted in between. */
static size_t filter_jump_target(struct filter_program *p, size_t to)
{
    if (p->n + 1 - to <= JUMP_MAX)
        return to;
    return filter_push(p, BPF_JMP | BPF_JA, (uint32_t)(p->n - to), 0, 0);
}

static size_t filter_branch(struct filter_program *p, uint16_t compare, uint32_t k, size_t yes, size_t no)
{
    yes = filter_jump_target(p, yes);
    no = filter_jump_target(p, no);
    return filter_push(p, BPF_JMP | BPF_K | compare, k, p->n - yes, p->n - no);
}

/* Returns the position of a return of this value near the front: an existing copy if it is within
 * reach with a margin, else a new one. */
static size_t filter_return_at(struct filter_program *p, uint32_t value)
{
    size_t i = 0;

    while (i < p->nreturns && p->returns[i].value != value)
        i++;
    if (i < p->nreturns && p->n + 4 - p->returns[i].at <= JUMP_MAX)
        return p->returns[i].at;
    assert(i < RETURNS_MAX);
    if (i == p->nreturns)
        p->nreturns++;
    p->returns[i].value = value;
    p->returns[i].at = filter_push(p, BPF_RET | BPF_K, value, 0, 0);
    return p->returns[i].at;
}

static size_t filter_action_at(struct filter_program *p, int action)
{
    if (action < 0) {
        assert(p->rule[ACTION_RULE(action)]); /* rules refer only to later rules, which are written first */
        return p->rule[ACTION_RULE(action)];
    }
    if (action == ACTION_EPERM)
        return filter_return_at(p, p->eperm);
    return filter_return_at(p, action ? SECCOMP_RET_ERRNO | (uint32_t)action : SECCOMP_RET_ALLOW);
}

static bool filter_same_load(const struct arg_test *a, const struct arg_test *b)
{
    return a->arg == b->arg && a->mask == b->mask;
}

/* Writes one test: jumps to `yes` if the loaded value is in the range, else to `no`. */
static size_t filter_write_test(struct filter_program *p, const struct arg_test *t, size_t yes, size_t no)
{
    if (t->from == t->to)
        return filter_branch(p, BPF_JEQ, t->from, yes, no);
    return filter_branch(p, BPF_JGE, t->from, filter_branch(p, BPF_JGT, t->to, no, yes), no);
}

/* Writes the tests `first` to `last`; the last one is the ELSE. */
static size_t filter_write_rule(struct filter_program *p, const struct arg_test *first, const struct arg_test *last)
{
    size_t next = filter_action_at(p, last->then);

    for (const struct arg_test *t = last - 1; t >= first; t--) {
        next = filter_write_test(p, t, filter_action_at(p, t->then), next);
        if (t > first && filter_same_load(t, t - 1))
            continue;
        if (t->mask != ALL_BITS)
            filter_push(p, BPF_ALU | BPF_AND | BPF_K, t->mask, 0, 0);
        next = filter_push(p, BPF_LD | BPF_W | BPF_ABS, ARG_OFFSET(t->arg), 0, 0);
    }
    return next;
}

static void filter_need_rule(bool need[RULE_COUNT], int action)
{
    if (action < 0)
        need[ACTION_RULE(action)] = true;
}

/* Writes only the rules that a range refers to, directly or through another rule. */
static void filter_write_rules(struct filter_program *p, const struct filter_range *ranges, size_t n)
{
    bool need[RULE_COUNT] = { 0 };

    for (size_t i = 0; i < n; i++)
        filter_need_rule(need, ranges[i].action);
    for (size_t i = 0; i < arg_test_count; i++) /* rules refer only to later rules, so one pass in order is enough */
        if (need[arg_tests[i].rule])
            filter_need_rule(need, arg_tests[i].then);
    for (size_t last = arg_test_count; last-- > 0;) {
        size_t first = last;

        while (first > 0 && arg_tests[first - 1].rule == arg_tests[last].rule)
            first--;
        if (need[arg_tests[last].rule])
            p->rule[arg_tests[last].rule] = filter_write_rule(p, &arg_tests[first], &arg_tests[last]);
        last = first;
    }
}

/* Returns where to divide ranges[lo..hi): the boundary with the most equal count of numbers on both
 * sides. The last range extends to 2^32, but only its first number counts, because the kernel tries
 * no others. */
static size_t filter_split_point(const struct filter_range *ranges, size_t lo, size_t hi)
{
    uint32_t begin = ranges[lo].from, end = ranges[hi - 1].from + 1;
    size_t a = lo + 1, b = hi - 1;

    while (a < b) { /* the first boundary at or after the middle */
        size_t m = a + (b - a) / 2;

        if (ranges[m].from - begin < end - ranges[m].from)
            a = m + 1;
        else
            b = m;
    }
    if (a > lo + 1 &&
        end - ranges[a - 1].from - (ranges[a - 1].from - begin) < ranges[a].from - begin - (end - ranges[a].from))
        a--;
    return a;
}

static size_t filter_write_tree(struct filter_program *p, const struct filter_range *ranges, size_t lo, size_t hi)
{
    if (hi - lo == 1)
        return filter_action_at(p, ranges[lo].action);

    size_t mid = filter_split_point(ranges, lo, hi);
    size_t above = filter_write_tree(p, ranges, mid, hi);
    size_t below = filter_write_tree(p, ranges, lo, mid);
    return filter_branch(p, BPF_JGE, ranges[mid].from, above, below);
}

int filter_compile(const struct filter_range *ranges, size_t n, bool notify, struct sock_filter prog[FILTER_MAX],
                   size_t *ret_len, struct err *err)
{
    struct filter_program p = { .end = prog + FILTER_MAX,
                                .eperm = notify ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | EPERM };

    filter_write_rules(&p, ranges, n);
    size_t root = filter_write_tree(&p, ranges, 0, n);
    if (root != p.n) /* a tree with a single leaf */
        filter_push(&p, BPF_JMP | BPF_JA, (uint32_t)(p.n - root), 0, 0);
    size_t number = filter_push(&p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    size_t kill = filter_push(&p, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    filter_branch(&p, BPF_JEQ, AUDIT_ARCH_X86_64, number, kill);
    filter_push(&p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    if (p.full)
        return err_set(err, ERR_BUG, "the system call filter has more than %d instructions", FILTER_MAX);

    memmove(prog, p.end - p.n, p.n * sizeof(*prog));
    *ret_len = p.n;
    return 0;
}

/* Appends a range, or extends the last one if it has the same action. Returns the new count. */
static size_t filter_add_range(struct filter_range *ranges, size_t n, uint32_t from, int action)
{
    if (n > 0 && ranges[n - 1].action == action)
        return n;
    ranges[n] = (struct filter_range){ from, action };
    return n + 1;
}

/* The action of a row under the spec. */
static int filter_choose_action(const struct filter_spec *s, const struct syscall_row *row)
{
    const struct grant_row *g = grant_rows;
    int action = row->action[s->profile];

    for (; g < grant_rows + grant_row_count; g++)
        if (g->nr == row->nr && s->grants >> g->grant & 1)
            action = g->action;
    if (action <= 0 && s->deny[row->nr >> 6] & 1ull << (row->nr & 63))
        return ACTION_EPERM;
    return action;
}

int filter_build(const struct filter_spec *s, bool notify, struct sock_filter prog[FILTER_MAX], size_t *ret_len,
                 struct err *err)
{
    struct filter_range ranges[FILTER_RANGES_MAX] = { 0 };
    uint32_t next = 0; /* the number after the last one seen */
    size_t n = 0;

    for (size_t i = 0; i < syscall_row_count; i++) {
        const struct syscall_row *row = &syscall_rows[i];

        if (row->nr >= 64 * FILTER_DENY_WORDS)
            return err_set(err, ERR_BUG, "system call %u is beyond the numbers that can be denied", row->nr);
        if (n + 3 > FILTER_RANGES_MAX)
            return err_set(err, ERR_BUG, "the system call table has more than %d ranges", FILTER_RANGES_MAX);
        if (row->nr > next)
            n = filter_add_range(ranges, n, next, ACTION_ENOSYS); /* a gap in the table */
        n = filter_add_range(ranges, n, row->nr, filter_choose_action(s, row));
        next = row->nr + 1u;
    }
    n = filter_add_range(ranges, n, next, ACTION_ENOSYS); /* and all later numbers */
    return filter_compile(ranges, n, notify, prog, ret_len, err);
}
