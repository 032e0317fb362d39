/* contract.h - api/openapi.yaml as it was when this was built; made by tools/embed. */
#pragma once

#include <stddef.h>

extern const char api_contract[];
extern const size_t api_contract_len;
