#include "service/driver_states.h"

#include "sandbox/drivers.h"

static void driver_state_capabilities_json(const struct driver_caps *c, struct jsonw *w)
{
    jsonw_kobject(w, "capabilities");
    jsonw_kbool(w, "denials", c->denials);
    jsonw_kbool(w, "pause", c->freeze);
    jsonw_kbool(w, "keep", c->keep);
    jsonw_kbool(w, "pool", c->prepare);
    jsonw_kbool(w, "recycle", c->reset);
    jsonw_kbool(w, "zygote", c->zygote);
    jsonw_end_object(w);
}

static void driver_state_json(enum driver_id d, uint32_t forbidden, struct jsonw *w)
{
    struct driver_availability a;

    drivers_check_host(d, "", &a);
    jsonw_object(w);
    jsonw_kstr(w, "name", driver_name(d));
    jsonw_kstr(w, "summary", driver_summary(d));
    jsonw_kbool(w, "allowed", !(forbidden & DRIVER_BIT(d)));
    jsonw_kbool(w, "default", d == driver_default(forbidden));
    jsonw_kbool(w, "available", a.available);
    if (!a.available) {
        jsonw_kstr(w, "reason", a.why);
        jsonw_kstr(w, "fix", a.fix);
    }
    driver_state_capabilities_json(drivers_caps(d), w);
    driver_weaknesses_json(d, w);
    jsonw_end_object(w);
}

void driver_states_json(const struct operator_limits *f, struct jsonw *w)
{
    uint32_t forbidden = f ? f->forbidden_drivers : 0;

    jsonw_karray(w, "drivers");
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        driver_state_json((enum driver_id)i, forbidden, w);
    jsonw_end_array(w);
}

int driver_states_find_language(const struct operator_limits *f, const struct language *l, char *path, size_t cap,
                                struct err *err)
{
    return drivers_ops(driver_default(f ? f->forbidden_drivers : 0))->find_language("", l, path, cap, err);
}
