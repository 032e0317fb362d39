#include "policy/driver.h"

#include "core/base/str.h"
#include "core/base/suggest.h"

static const struct {
    const char *name, *summary;
} driver_table[] = {
#define DRIVER(name, id, summary) [DRIVER_##id] = { #name, summary },
#include "policy/drivers.def"
#undef DRIVER
};

const char *driver_name(enum driver_id d)
{
    return driver_table[d].name;
}

const char *driver_summary(enum driver_id d)
{
    return driver_table[d].summary;
}

bool driver_parse(const char *name, enum driver_id *ret)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        if (str_eq(name, driver_table[i].name)) {
            *ret = (enum driver_id)i;
            return true;
        }
    return false;
}

int driver_unknown_error(const char *what, const char *name, struct err *err)
{
    auto_buf names = { 0 };
    struct suggest near;

    suggest_init(&near, name);
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        suggest_offer(&near, driver_table[i].name);
        buf_addf(&names, "%s%s", i ? ", " : "", driver_table[i].name);
    }
    if (near.best)
        return err_set(err, ERR_DRIVER_MISSING, "%s: unknown driver '%.40s'; did you mean %s?", what, name, near.best);
    return err_set(err, ERR_DRIVER_MISSING, "%s: unknown driver '%.40s'; use %s", what, name, names.data);
}

#define DRIVER_WEAKNESS(driver, name, description) { DRIVER_##driver, #name, description },
static const struct driver_weakness {
    enum driver_id driver;
    const char *name, *description;
} driver_weakness_table[] = {
#include "policy/driver_weaknesses.def"
};
#undef DRIVER_WEAKNESS

void driver_weaknesses_json(enum driver_id d, struct jsonw *w)
{
    jsonw_karray(w, "weaker");
    for (size_t i = 0; i < ARRAY_LEN(driver_weakness_table); i++) {
        const struct driver_weakness *one = &driver_weakness_table[i];

        if (one->driver != d)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "name", one->name);
        jsonw_kstr(w, "description", one->description);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

void driver_weaknesses_print(enum driver_id d, const char *prefix, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(driver_weakness_table); i++)
        if (driver_weakness_table[i].driver == d)
            buf_addf(out, "%s%s: %s\n", prefix, driver_weakness_table[i].name, driver_weakness_table[i].description);
}

enum driver_id driver_default(uint32_t forbidden)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        if (!(forbidden & DRIVER_BIT(i)))
            return (enum driver_id)i;
    return DRIVER_NATIVE; /* every driver is forbidden: driver_check_allowed refuses it */
}

int driver_check_allowed(uint32_t forbidden, enum driver_id d, const char *what, const char *whose, struct err *err)
{
    auto_buf allowed = { 0 };

    if (!(forbidden & DRIVER_BIT(d)))
        return 0;
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        if (!(forbidden & DRIVER_BIT(i)))
            buf_addf(&allowed, "%s%s", allowed.len ? ", " : "", driver_table[i].name);
    return err_set(err, ERR_DRIVER_REFUSED, "%s: %.80s does not allow driver %s; it allows %s", what, whose,
                   driver_table[d].name, allowed.len ? allowed.data : "none");
}
