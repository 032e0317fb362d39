/* contract.h - api/openapi.yaml, embedded at build time by tools/embed. */
#pragma once

#include <stddef.h>

extern const char api_contract[];
extern const size_t api_contract_len;
