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
    const struct wall *w = walls_all(&n);

    *r = (struct receipt){ 0 };
    for (size_t i = 0; i < n; i++) {
        r->host_walls |= w[i].outside;
        r->inside_walls |= w[i].inside;
    }
    memset(r->enforced, 2, sizeof(r->enforced));
}

/* Every row is held except `name`, which has the answer `word`, or no answer if `word` is NULL. */
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

TEST(unmet_operator_limits_are_part_of_the_verdict)
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
    r.enforced[LIMIT_CPU_TIME] = 1; /* not requested, so its state does not matter */
    doctor_report_check_operator_limits(&f, &demands, &r, &l);
    assert_true(f.operator_limits_unmet);
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);
    assert_non_null(strstr(f.operator_limits_text, "every run is refused: pids fully enforced"));
    assert_null(strstr(f.operator_limits_text, "cpuTimeMs"));

    examine(&f, &r, "", NULL);
    r.rootless = true;
    doctor_report_check_operator_limits(&f, &walls, &r, &l);
    assert_true(f.operator_limits_unmet);
    assert_non_null(strstr(f.operator_limits_text, "walls that only root can raise"));
}

/* Reads answers for both rates with the given states and returns the status of the doctor. */
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

TEST(disk_rates_count_only_if_reported_as_enforced)
{
    static const char both[] = "ioReadBytesPerSecond\theld\t1 s\nioWriteBytesPerSecond\theld\t2 s\n";
    static const char fast[] = "ioReadBytesPerSecond\topen\t1 ms\nioWriteBytesPerSecond\topen\t2 ms\n";
    struct doctor_report f;
    auto_buf out = { 0 };

    assert_int_equal(rates(&f, both, 2, 2), DOCTOR_COMPLETE);
    assert_string_equal(f.disk_rates, "--io-read held (1 s); --io-write held (2 s)");
    assert_int_equal(rates(&f, both, 2, 1), DOCTOR_COMPLETE); /* rates are not part of level standard */
    assert_non_null(strstr(f.disk_rates, "--io-write held for synchronous writes (2 s)"));
    assert_int_equal(rates(&f, "", 2, 2), DOCTOR_COMPLETE);
    assert_non_null(strstr(f.disk_rates, "--io-read was not tested"));
    assert_int_equal(rates(&f, fast, 0, 1), DOCTOR_COMPLETE);
    assert_non_null(strstr(f.disk_rates, "--io-read has no effect here; --io-write did not hold here"));

    assert_int_equal(rates(&f, fast, 2, 1), DOCTOR_BROKEN); /* but a rate reported as enforced must hold */
    doctor_report_print(&f, &out);
    assert_non_null(strstr(out.data, "--io-read DID NOT HOLD (1 ms)"));
    assert_non_null(strstr(out.data, "standard is not complete on this host: disk rates did not hold"));
}

TEST(rates_are_read_separately_from_walls_and_limits)
{
    struct doctor_report f;
    struct err err = { 0 };

    assert_int_equal(read_text("ioReadBytesPerSecond\theld\tx\n", 30), -1);
    doctor_report_rates_init(&f);
    assert_int_equal(doctor_report_read(&f, "landlock\theld\tx\n", 16, &err), -1);
}

TEST(malformed_answers_are_refused)
{
    static const char *const bad[] = {
        "landlock\theld\tx",   /* no line end */
        "landlock\theld\t\n",  /* empty observation */
        "landlock\theld\n",    /* a field is missing */
        "landlock\tHELD\tx\n", /* unknown state */
        "landlock\theldx\tx\n",  "landlock held x\n",
        "moat\theld\tx\n", /* unknown wall */
        "land\theld\tx\n", /* prefix of a name */
        "\theld\tx\n",           "\n",
        "landlock\theld\tx\n\n", "landlock\topen\tx\nlandlock\theld\ty\n", /* a second answer */
    };
    char text[400];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (read_text(bad[i], strlen(bad[i])) == 0)
            fail_msg("case %zu was accepted", i);
    assert_int_equal(read_text("landlock\theld\ta\0b\n", 18), -1);
    snprintf(text, sizeof(text), "landlock\theld\t%0*d\n", DOCTOR_FINDING_SEEN_SIZE, 0);
    assert_int_equal(read_text(text, strlen(text)), -1);
    snprintf(text, sizeof(text), "landlock\theld\t%0*d\n", DOCTOR_FINDING_SEEN_SIZE - 1, 0);
    assert_int_equal(read_text(text, strlen(text)), 0);
    assert_int_equal(read_text("", 0), 0);
}

TEST(control_characters_of_an_answer_are_removed)
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

TEST(the_status_distinguishes_complete_broken_and_partial)
{
    struct receipt up, weak, plain;
    struct doctor_report f;

    all_up(&up);
    examine(&f, &up, "", NULL);
    assert_int_equal(doctor_report_status(&f), DOCTOR_COMPLETE);

    examine(&f, &up, "seccomp", "open");
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
    examine(&f, &up, "seccomp", NULL); /* an attack that did not run proves nothing */
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
    examine(&f, &up, "pids", "open"); /* reported as enforced, and is not */
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);

    weak = up;
    weak.enforced[LIMIT_PIDS] = 1;
    examine(&f, &weak, "", NULL);
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);
    weak.enforced[LIMIT_PIDS] = 0;
    examine(&f, &weak, "pids", "open");
    assert_int_equal(doctor_report_status(&f), DOCTOR_PARTIAL);

    plain = up;
    plain.inside_walls = 0; /* the attack was refused, but the receipt lacks the wall */
    examine(&f, &plain, "", NULL);
    assert_int_equal(doctor_report_status(&f), DOCTOR_BROKEN);
}

TEST(only_an_unprivileged_user_may_lack_the_walls_of_root)
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
    const struct wall *w = walls_all(&n);

    doctor_report_init(&f);
    for (size_t i = 0; i < n; i++) {
        bool found = false;

        for (size_t k = 0; k < f.n; k++)
            found |= str_eq(f.v[k].name, w[i].name) && f.v[k].attack && *f.v[k].attack;
        if (!found)
            fail_msg("no attack for %s", w[i].name);
    }
}

TEST(a_missing_limit_is_printed_with_its_fix)
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
        RUN(unmet_operator_limits_are_part_of_the_verdict),
        RUN(disk_rates_count_only_if_reported_as_enforced),
        RUN(rates_are_read_separately_from_walls_and_limits),
        RUN(malformed_answers_are_refused),
        RUN(control_characters_of_an_answer_are_removed),
        RUN(the_status_distinguishes_complete_broken_and_partial),
        RUN(only_an_unprivileged_user_may_lack_the_walls_of_root),
        RUN(every_wall_of_a_receipt_is_attacked),
        RUN(a_missing_limit_is_printed_with_its_fix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
