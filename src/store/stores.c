#include "store/stores.h"

static const struct store_backend *const stores_backends[STORE_SCHEME_COUNT] = {
    [STORE_SCHEME_SQLITE] = &store_sqlite,
};

const struct store_backend *stores_backend(enum store_scheme scheme)
{
    return stores_backends[scheme];
}
