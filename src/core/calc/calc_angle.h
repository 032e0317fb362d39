/* calc_angle.h - trigonometric functions. Angles are in radians.
 *
 * A rational multiple of pi stays one, so sin(pi / 6), cos(60 degrees) and degrees(asin(1 / 2)) are
 * exact. */
#pragma once

#include "core/calc/calc_function.h"

int calc_degrees(struct calc_run *r, struct calc_value *a); /* an angle in degrees as radians */
calc_function_fn calc_angle_degrees, calc_angle_radians, calc_angle_sin, calc_angle_cos, calc_angle_tan,
    calc_angle_asin, calc_angle_acos, calc_angle_atan;
