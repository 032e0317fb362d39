#include "client/cli/doctor_network.h"

#include "core/base/str.h"

#include <stdio.h>

/* clang-format off */
static const struct doctor_network_row {
    const char *name, *tried;
} doctor_network_rows[] = {
    { "egress_addresses",  "addresses past the proxy" },
    { "egress_privileges", "raw and transparent sockets, and the ports of the proxy" },
    { "egress_names",      "a name that no rule allows" },
    { "egress_proxy",      "a destination that no rule allows" },
    { "egress_carrier",    "an address that no name has" },
};
/* clang-format on */

void doctor_network_set_missing(struct doctor_report *f, const char *why)
{
    (void)str_copy(f->network_carrier, sizeof(f->network_carrier), "none");
    snprintf(f->network, sizeof(f->network), "not available: %s", why);
    str_strip_control_chars(f->network);
}

int doctor_network_judge(struct doctor_report *f, const char *carrier, const char *text, size_t len, struct err *err)
{
    struct doctor_report rows = { 0 };
    auto_buf says = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(doctor_network_rows); i++)
        rows.v[rows.n++] = (struct doctor_finding){ .name = doctor_network_rows[i].name,
                                                    .attack = doctor_network_rows[i].tried };
    if (doctor_report_read(&rows, text, len, err) < 0)
        return -1;
    (void)str_copy(f->network_carrier, sizeof(f->network_carrier), carrier);
    buf_adds(&says, str_eq(carrier, "tproxy")
                        ? "carrier tproxy, for every program"
                        : "carrier proxy: the kernel has no TPROXY (nf_tables, nft_tproxy), so only programs "
                          "that use proxy variables connect");
    for (size_t i = 0; i < rows.n; i++) {
        const struct doctor_finding *one = &rows.v[i];
        bool mismatch = str_eq(one->name, "egress_carrier") && !str_eq(one->seen, carrier);

        if (one->answered && !one->broken && !mismatch)
            continue;
        buf_addf(&says, "; %s: DID NOT HOLD (%s)", one->attack, one->answered ? one->seen : "no answer");
        f->network_broken = true;
    }
    if (!f->network_broken)
        buf_adds(&says, "; everything that no rule allows was refused");
    snprintf(f->network, sizeof(f->network), "%s", says.data);
    return 0;
}
