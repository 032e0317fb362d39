/* runtime_walls.h - what the runtime can see of its own walls, from inside. */
#pragma once

#include "core/base/base.h"

uint32_t runtime_walls_measure(void); /* RT_WALL_* bits, all but RT_WALL_LANDLOCK */
/* True when the text of /proc/net/dev names no interface but lo. */
bool runtime_walls_only_loopback(const char *net_dev);
