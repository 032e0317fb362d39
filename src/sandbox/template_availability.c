#include "sandbox/template_availability.h"

#include "core/base/err.h"
#include "core/base/str.h"
#include "policy/languages.h"
#include "sandbox/drivers.h"

#include <limits.h>

static void template_availability_name_modules(struct template_availability *a, size_t count)
{
    const char *p = a->missing.data;

    buf_adds(&a->reason,
             count == 1 ? "this host does not have the Python module " : "this host does not have the Python modules ");
    for (size_t i = 0; i < count; i++) {
        auto_free char *name = str_dup_n(p, strcspn(p, ","));

        buf_addf(&a->reason, "%s%s", i == 0 ? "" : i + 1 == count ? " and " : ", ", name);
        p += strlen(name) + 1;
    }
}

void template_availability_init(struct template_availability *ret, enum driver_id driver, const char *runtime,
                                const char *preload, const struct python_modules *modules)
{
    const struct language *rt = language_by_name(runtime);
    char path[PATH_MAX];
    struct err err = { 0 };

    *ret = (struct template_availability){ .available = true };
    if (rt && drivers_ops(driver)->find_language("", rt, path, sizeof(path), &err) < 0) {
        ret->available = false;
        buf_adds(&ret->reason, err.msg);
        buf_addf(&ret->fix, "apt-get install %s", rt->package);
        return;
    }
    size_t missing = preload ? python_modules_missing(modules, preload, &ret->missing) : 0;
    if (missing) {
        ret->available = false;
        template_availability_name_modules(ret, missing);
        python_modules_install_command(ret->missing.data, &ret->fix);
    }
}

void template_availability_done(struct template_availability *a)
{
    buf_done(&a->missing);
    buf_done(&a->reason);
    buf_done(&a->fix);
}
