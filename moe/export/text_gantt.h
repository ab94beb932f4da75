#pragma once
// A timeline as text, for the terminal.
#include <string>

#include "moe/cost/simulator.h"

namespace moe {

/// One line a lane that has tasks, `width` cells (at least 10) over the whole timeline; below them the scale and the
/// letters used. A cell shows the task that takes most of it, upper case where a task begins: two chunks of a dispatch
/// are "DdddDddd". '.' is idle. The time axis ends with the timeline, or at `until_s` where that is later, so that
/// several can share one scale; shares of busy time are of the timeline alone.
///
///     compute |AaaEeeee..|  80 % busy
std::string text_gantt(const Structure& structure, const Timeline& timeline, int width, double until_s = 0);

}  // namespace moe
