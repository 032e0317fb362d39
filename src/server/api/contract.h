/* contract.h - api/openapi.yaml and the pages made from it, embedded at build time. */
#pragma once

#include <stddef.h>

extern const char api_contract[], api_contract_json[];
extern const size_t api_contract_len, api_contract_json_len;
/* HTML of GET /docs and GET /docs/errors, and the style of both. */
extern const char api_docs_page[], api_errors_page[], api_docs_style[];
extern const size_t api_docs_page_len, api_errors_page_len, api_docs_style_len;
