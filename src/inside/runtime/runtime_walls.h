/* runtime_walls.h - checks of the runtime's own walls, from inside. */
#pragma once

#include "core/base/base.h"

uint32_t runtime_walls_measure(void); /* RT_WALL_* bits, all but RT_WALL_LANDLOCK */
/* True if the text of /proc/net/dev lists lo and no other interface. */
bool runtime_walls_only_loopback(const char *net_dev);
