#include "tests/unit/test.h"

#include "client/cli/host_facts.h"

TEST(cgroup_advice_depends_on_the_host)
{
    static const struct {
        const char *release;
        bool systemd;
        const char *says;
    } rows[] = {
        { "6.1.0-54-cloud-amd64", true, "a systemd user session" },
        { "6.1.0-54-cloud-amd64", false, "a systemd user session" },
        { "6.6.87.2-microsoft-standard-WSL2", false, "/etc/wsl.conf" },
        { "6.6.87.2-microsoft-standard-WSL2", true, "a systemd user session" },
        { "", false, "a systemd user session" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strstr(host_facts_cgroup_advice(rows[i].release, rows[i].systemd), rows[i].says))
            fail_msg("row %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = { RUN(cgroup_advice_depends_on_the_host) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
