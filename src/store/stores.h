/* stores.h - the backend of each scheme of store_url.h. Only src/store includes it. */
#pragma once

#include "store/backend.h"

const struct store_backend *stores_backend(enum store_scheme scheme);
