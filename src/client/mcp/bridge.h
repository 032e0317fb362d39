/* bridge.h - `cove mcp`: carries MCP messages between a client on two descriptors, one JSON message
 * per line, and a server that speaks Streamable HTTP. Both eras of the protocol pass.
 *
 * With a server of cove, the bridge opens one session for its life, so that all calls share one
 * sandbox, and closes it at the end. Servers of others need no such session. */
#pragma once

#include "client/client.h"

struct bridge;

struct bridge_settings {
    struct ev *ev;
    struct client *client;
    int in, out;
    const char *sandbox;  /* an existing one for the session; NULL: the server creates one when it is needed */
    const char *template; /* of the sandbox that the server creates; NULL: the server's default */
};

struct bridge *bridge_new(const struct bridge_settings *set);
void bridge_free(struct bridge *b);
DEFINE_AUTO(bridge, bridge_free);

/* Runs the loop until the input has ended and its requests are answered, the output is closed, or
 * bridge_stop() was called; the session of the server is closed then. */
void bridge_run(struct bridge *b);
void bridge_stop(struct bridge *b); /* abandons open requests; to be called from the loop */
