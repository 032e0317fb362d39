/* The table of the drivers: one row each. This is the only file that knows their folders. */
#include "sandbox/drivers.h"

#include "sandbox/jailed/jailed.h"

#define LEVEL_BIT(l) (1u << LEVEL_##l)
#define EVERY_MOUNT (1u << SANDBOX_MOUNT_BIND_RO | 1u << SANDBOX_MOUNT_WORKSPACE | 1u << SANDBOX_MOUNT_WORKSPACE_COW)

static const struct {
    struct driver_caps caps;
    const struct driver_ops *ops;
    void (*check_host)(const char *root, struct driver_availability *ret); /* NULL: any host has what it needs */
} drivers_table[DRIVER_COUNT] = {
    [DRIVER_NATIVE] = { { .levels = LEVEL_BIT(STANDARD) | LEVEL_BIT(CUSTOM),
                          .mounts = EVERY_MOUNT,
                          .freeze = true,
                          .keep = true,
                          .prepare = true,
                          .reset = true,
                          .zygote = true,
                          .denials = true,
                          .fd_passing = true,
                          .egress = true,
                          .processes = 1 },
                        &jailed_driver_ops },
    /* The user namespace of its sandboxes belongs to the sandbox's own uid, so that no zygote of
     * the host can enter it. */
    [DRIVER_BWRAP] = { { .levels = LEVEL_BIT(STANDARD) | LEVEL_BIT(CUSTOM),
                         .mounts = EVERY_MOUNT,
                         .freeze = true,
                         .keep = true,
                         .prepare = true,
                         .reset = true,
                         .zygote = false,
                         .denials = true,
                         .fd_passing = true,
                         .processes = 2 }, /* Bubblewrap stays as the parent of PID 1 */
                       &jailed_driver_ops,
                       bwrap_availability_check },
};

const struct driver_caps *drivers_caps(enum driver_id d)
{
    return &drivers_table[d].caps;
}

int drivers_check_network(enum driver_id d, enum network_mode mode, struct err *err)
{
    if (mode == NETWORK_NONE || drivers_caps(d)->egress)
        return 0;
    return err_set(err, ERR_DRIVER_UNSUPPORTED, "driver %s has no network; use native, or network none",
                   driver_name(d));
}

const struct driver_ops *drivers_ops(enum driver_id d)
{
    return drivers_table[d].ops;
}

void drivers_check_host(enum driver_id d, const char *root, struct driver_availability *ret)
{
    *ret = (struct driver_availability){ 0 };
    if (drivers_table[d].check_host)
        drivers_table[d].check_host(root, ret);
    else
        ret->available = true;
}
