#pragma once
// Timelines as text, for the terminal.
#include <string>
#include <vector>

#include "moe/cost/simulator.h"

namespace moe {

/// Holds one of the timelines that share a picture. A title stands above its lanes.
struct DrawnTimeline {
  std::string title;
  const Structure& structure;
  const Timeline& timeline;
};

/// The cells of a line that is 120 columns wide with the lane's name and its share.
inline constexpr int kGanttColumns = 99;

/// Draws one line a lane that has tasks, `width` cells (at least 10) over the longest of the timelines; below them all
/// the scale and the letters used. A cell shows the task that takes most of it, upper case where a task begins: two
/// chunks of a dispatch are "DdddDddd". '.' is idle. Shares of busy time are of each timeline alone.
///
///     compute |AaaEeeee..|  80 % busy
std::string text_gantt(const std::vector<DrawnTimeline>& all, int width);

}  // namespace moe
