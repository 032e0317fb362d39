/* http_limits.h - bounds for an HTTP server of a test. */
#pragma once

#include "server/http/server.h"

static inline struct http_limits http_limits_for_tests(void)
{
    return (struct http_limits){
        .line_max = 8 * KIB,
        .head_max = 16 * KIB,
        .headers_max = 100,
        .body_max = 1 * MIB,
        .buffered_max = 64 * MIB,
        .conns_max = 1024,
        .conns_per_addr = 256,
        .head_ms = 10000,
        .body_ms = 30000,
        .idle_ms = 60000,
        .write_ms = 30000,
        .ws_max = 10000,
        .ws_per_addr = 1024,
        .ws_message_max = 4 * MIB,
        .ws_ping_ms = 30000,
        .ws_frames_per_second = 5000,
    };
}
