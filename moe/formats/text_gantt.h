#pragma once
// Timelines as text, for the terminal.
#include <string>
#include <vector>

#include "moe/simulator/simulator.h"

namespace moe {

/// One of the timelines that share a picture. A title stands above its lanes.
struct DrawnTimeline {
  std::string title;
  const Structure& structure;
  const Timeline& timeline;
};

/// Returns the cells of a line that fits the output with the lane's name and its share, and has at most 120 columns.
int gantt_columns();

/// Draws one line a lane that has tasks, `width` cells (at least 10) over the longest of the timelines; below them all
/// the scale and the letters used. A cell shows the task that takes most of it, upper case where a task begins: two
/// chunks of a dispatch are "DdddDddd". '.' is idle. Shares of busy time are of each timeline alone.
///
///     compute |AaaEeeee..|  80 % busy
std::string text_gantt(const std::vector<DrawnTimeline>& all, int width);

}  // namespace moe
