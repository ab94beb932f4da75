#pragma once
// Timelines as text, for the terminal.
#include <string>
#include <vector>

#include "moe/simulator/simulator.h"

namespace moe {

/// One of the timelines of a picture. Its title is printed above its lanes.
struct DrawnTimeline {
  std::string title;
  const Structure& structure;
  const Timeline& timeline;
};

/// Returns the cells per line such that the line, with the lane's name and its share, fits the output and 120 columns.
int gantt_columns();

/// Draws one line for each lane with tasks, `width` cells (at least 10) over the longest of the timelines; below all of
/// them, the scale and the letters that are used. A cell shows the task that takes most of it, in upper case if the
/// task begins there: two chunks of a dispatch are "DdddDddd". '.' is idle. Shares of busy time are per timeline.
///
///     compute |AaaEeeee..|  80 % busy
std::string text_gantt(const std::vector<DrawnTimeline>& all, int width);

}  // namespace moe
