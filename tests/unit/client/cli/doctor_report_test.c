#include "tests/unit/test.h"

#include "core/base/str.h"
#include "client/cli/doctor_report.h"
#include "sandbox/walls.h"
#include "core/wire/jail.h"

#include <stdio.h>

/* A receipt of a sandbox with every wall up and every limit enforced. */
static void all_up(struct receipt *r)
{
    size_t n;
    const struct wall *w = walls_outside(&n);

    *r = (struct receipt){ 0 };
    for (size_t i = 0; i < n; i++)
        r->host_walls |= w[i].bit;
    w = walls_inside(&n);
    for (size_t i = 0; i < n; i++)
        r->inside_walls |= w[i].bit;
    memset(r->enforced, 2, sizeof(r->enforced));
}

/* Every row held but the one named, which is said to be `word`, or to have no answer when that is NULL. */
static void examine(struct doctor_report *f, const struct receipt *r, const char *name, const char *word)
{
    struct err err = { 0 };
    char line[128];

    doctor_report_init(f);
    for (size_t i = 0; i < f->n; i++) {
        bool other = str_eq(f->v[i].name, name);

        if (other && !word)
            continue;
        snprintf(line, sizeof(line), "%s\t%s\tseen\n", f->v[i].name, other ? word : "held");
        assert_int_equal(doctor_report_read(f, line, strlen(line), &err), 0);
    }
    doctor_report_apply_receipt(f, r, ~0ull);
}

static int read_text(const char *text, size_t len)
{
    struct doctor_report f;
    struct err err = { 0 };

    doctor_report_init(&f);
    return doctor_report_read(&f, text, len, &err);
}

TEST(a_floor_that_this_host_cannot_have_is_part_of_the_verdict)
{
    struct doctor_report f;
    struct receipt r;
    struct limits l;
    char file[] = "/etc/cove/floor.yaml";
    struct operator_limits none = { 0 },
                           demands = { .file = file, .must_enforce = LIMIT_BIT(PIDS) | LIMIT_BIT(CPU_TIME) };
    struct operator_limits walls = { .file = file, .requires_every_wall = true };

    all_up(&r);
    limits_default(&l);
    examine(&f, &r, "", NULL);
    doctor_report_check_operator_limits(&f, &none, &r, &l);
    assert_string_equal(f.operator_limits_text, "");
    doctor_report_check_operator_limits(&f, &demands, &r, &l);
    assert_false(f.operator_limits_unmet);
    assert_int_equal(doctor_report_status(&f), DOCTOR_COMPLETE);

    examine(&f, &r, "", NULL);
    r.enforced[LIMIT_PIDS] = 1;
    r.enforced[LIMIT_CPU_TIME] = 1; /* nobody set one, so nothing is to be enforced */
    doctor_report_check_operator_limits(&f, &demands, &r, &l);
    assert_true(f.operator_limits_unmet);
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);
    assert_non_null(strstr(f.operator_limits_text, "every run is refused: pids fully enforced"));
    assert_null(strstr(f.operator_limits_text, "cpuTimeMs"));

    examine(&f, &r, "", NULL);
    r.host_walls |= JAIL_ROOTLESS;
    doctor_report_check_operator_limits(&f, &walls, &r, &l);
    assert_true(f.operator_limits_unmet);
    assert_non_null(strstr(f.operator_limits_text, "walls that only root can raise"));
}

/* What both rates were said to be, and whether that makes the doctor warn. */
static int rates(struct doctor_report *f, const char *text, uint8_t reads, uint8_t writes)
{
    struct doctor_report apart;
    struct receipt r;
    struct err err = { 0 };

    all_up(&r);
    examine(f, &r, "", NULL);
    r.enforced[LIMIT_IO_READ] = reads;
    r.enforced[LIMIT_IO_WRITE] = writes;
    doctor_report_rates_init(&apart);
    assert_int_equal(doctor_report_read(&apart, text, strlen(text), &err), 0);
    doctor_report_apply_receipt(&apart, &r, LIMIT_BIT(IO_READ) | LIMIT_BIT(IO_WRITE));
    doctor_report_add_rates(f, &apart);
    return doctor_report_status(f);
}

TEST(disk_rates_count_only_where_they_are_called_enforced)
{
    static const char both[] = "ioReadBytesPerSecond\theld\t1 s\nioWriteBytesPerSecond\theld\t2 s\n";
    static const char fast[] = "ioReadBytesPerSecond\topen\t1 ms\nioWriteBytesPerSecond\topen\t2 ms\n";
    struct doctor_report f;
    auto_buf out = { 0 };

    assert_int_equal(rates(&f, both, 2, 2), DOCTOR_COMPLETE);
    assert_string_equal(f.disk_rates, "--io-read held (1 s); --io-write held (2 s)");
    assert_int_equal(rates(&f, both, 2, 1), DOCTOR_COMPLETE); /* what is not of standard cannot make it incomplete */
    assert_non_null(strstr(f.disk_rates, "--io-write held for synchronous writes (2 s)"));
    assert_int_equal(rates(&f, "", 2, 2), DOCTOR_COMPLETE);
    assert_non_null(strstr(f.disk_rates, "--io-read was not tested"));
    assert_int_equal(rates(&f, fast, 0, 1), DOCTOR_COMPLETE);
    assert_non_null(strstr(f.disk_rates, "--io-read has no effect here; --io-write did not hold here"));

    assert_int_equal(rates(&f, fast, 2, 1), DOCTOR_BROKEN); /* but a promise that is not kept is one */
    doctor_report_print(&f, &out);
    assert_non_null(strstr(out.data, "--io-read DID NOT HOLD (1 ms)"));
    assert_non_null(strstr(out.data, "standard is not complete on this host: disk rates did not hold"));
}

TEST(rates_are_answered_apart_from_walls_and_limits)
{
    struct doctor_report f;
    struct err err = { 0 };

    assert_int_equal(read_text("ioReadBytesPerSecond\theld\tx\n", 30), -1);
    doctor_report_rates_init(&f);
    assert_int_equal(doctor_report_read(&f, "landlock\theld\tx\n", 16, &err), -1);
}

TEST(what_is_no_answer_is_refused)
{
    static const char *const bad[] = {
        "landlock\theld\tx",   /* no end */
        "landlock\theld\t\n",  /* saw nothing */
        "landlock\theld\n",    /* a field is missing */
        "landlock\tHELD\tx\n", /* no such word */
        "landlock\theldx\tx\n",  "landlock held x\n",
        "moat\theld\tx\n", /* no such wall */
        "land\theld\tx\n", /* a part of a name */
        "\theld\tx\n",           "\n",
        "landlock\theld\tx\n\n", "landlock\topen\tx\nlandlock\theld\ty\n", /* takes back what it said */
    };
    char text[400];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (read_text(bad[i], strlen(bad[i])) == 0)
            fail_msg("case %zu was taken", i);
    assert_int_equal(read_text("landlock\theld\ta\0b\n", 18), -1);
    snprintf(text, sizeof(text), "landlock\theld\t%0*d\n", DOCTOR_FINDING_SEEN_SIZE, 0);
    assert_int_equal(read_text(text, strlen(text)), -1);
    snprintf(text, sizeof(text), "landlock\theld\t%0*d\n", DOCTOR_FINDING_SEEN_SIZE - 1, 0);
    assert_int_equal(read_text(text, strlen(text)), 0);
    assert_int_equal(read_text("", 0), 0);
}

TEST(an_answer_cannot_steer_the_terminal)
{
    static const char text[] = "landlock\topen\t\x1b[2Jgone\n";
    struct doctor_report f;
    struct err err = { 0 };
    auto_buf out = { 0 };

    doctor_report_init(&f);
    assert_int_equal(doctor_report_read(&f, text, strlen(text), &err), 0);
    doctor_report_print(&f, &out);
    assert_null(strchr(out.data, '\x1b'));
    assert_non_null(strstr(out.data, "[2Jgone"));
}

TEST(the_status_tells_complete_broken_and_partial_apart)
{
    struct receipt up, weak, plain;
    struct doctor_report f;

    all_up(&up);
    examine(&f, &up, "", NULL);
    assert_int_equal(doctor_report_status(&f), DOCTOR_COMPLETE);

    examine(&f, &up, "seccomp", "open");
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
    examine(&f, &up, "seccomp", NULL); /* an attack that was not made proves nothing */
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
    examine(&f, &up, "pids", "open"); /* called enforced, and is not */
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);

    weak = up;
    weak.enforced[LIMIT_PIDS] = 1;
    examine(&f, &weak, "", NULL);
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);
    weak.enforced[LIMIT_PIDS] = 0;
    examine(&f, &weak, "pids", "open");
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);

    plain = up;
    plain.inside_walls = 0; /* the attack held, and the sandbox does not claim the wall */
    examine(&f, &plain, "", NULL);
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
}

TEST(only_a_plain_user_may_lack_the_walls_of_root)
{
    struct receipt r;
    struct doctor_report f;

    all_up(&r);
    examine(&f, &r, "unique_uid", "open");
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
    f.rootless = true;
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);
    examine(&f, &r, "landlock", "open");
    f.rootless = true;
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
}

TEST(every_wall_of_a_receipt_is_attacked)
{
    struct doctor_report f;
    size_t n;

    doctor_report_init(&f);
    for (int side = 0; side < 2; side++) {
        const struct wall *w = side ? walls_inside(&n) : walls_outside(&n);

        for (size_t i = 0; i < n; i++) {
            bool found = false;

            for (size_t k = 0; k < f.n; k++)
                found |= str_eq(f.v[k].name, w[i].name);
            if (!found)
                fail_msg("nobody attacks %s", w[i].name);
        }
    }
}

TEST(what_is_missing_comes_with_its_fix)
{
    struct receipt r;
    struct doctor_report f;
    auto_buf text = { 0 }, json = { 0 };

    all_up(&r);
    r.enforced[LIMIT_MEMORY] = 1;
    examine(&f, &r, "", NULL);
    doctor_report_print(&f, &text);
    doctor_report_json(&f, &json);
    assert_non_null(strstr(text.data, "partial  memoryBytes"));
    assert_non_null(strstr(text.data, "fix:  mount the control group controllers"));
    assert_non_null(strstr(text.data, "standard is not complete on this host: memoryBytes cannot"));
    assert_non_null(strstr(json.data, "\"complete\":false,\"exitStatus\":3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_floor_that_this_host_cannot_have_is_part_of_the_verdict),
        RUN(disk_rates_count_only_where_they_are_called_enforced),
        RUN(rates_are_answered_apart_from_walls_and_limits),
        RUN(what_is_no_answer_is_refused),
        RUN(an_answer_cannot_steer_the_terminal),
        RUN(the_status_tells_complete_broken_and_partial_apart),
        RUN(only_a_plain_user_may_lack_the_walls_of_root),
        RUN(every_wall_of_a_receipt_is_attacked),
        RUN(what_is_missing_comes_with_its_fix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
