#pragma once
// Timelines as text, for the terminal.
#include <string>
#include <vector>

#include "moe/simulator/simulator.h"

namespace moe {

/// One timeline of a drawing. The title is printed above its lanes.
struct DrawnTimeline {
  std::string title;
  const Structure& structure;
  const Timeline& timeline;
};

/// Returns the number of cells per line with which a line, including the lane's name and its busy share, fits the
/// terminal and 120 columns.
int gantt_columns();

/// Returns a text with one line for each lane with tasks; `width` cells (at least 10) span the longest timeline. Below
/// all lines are the scale and the letters that are used. A cell shows the task that takes most of it, in upper case if
/// the task begins there: two chunks of a dispatch are "DdddDddd"; '.' is idle. The share of busy time is relative to
/// the lane's own timeline.
///
///     compute |AaaEeeee..|  80 % busy
std::string text_gantt(const std::vector<DrawnTimeline>& all, int width);

}  // namespace moe
