#pragma once
// A layer's records, and which of its schedules someone else's framework can run.
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "moe/plan/shape.h"
#include "verbs/frameworks.h"

namespace moe::exchange {

struct TimedCase {
  CaseRecord record;
  double seconds = 0;  // forward + backward
};

struct TunedLayer {
  std::string name;
  LayerCase shape;
  TimedCase fastest, chosen;       // of all, and of what the framework runs
  std::vector<std::string> notes;  // what was chosen, and what that costs
  int64_t dense_hidden = 0;        // of the model's dense layers; 0: it has none
  std::string moe_layers = {};     // by layer 1, or 0 for a dense one; empty: not known, or none is dense
};

/// Returns the ok cases of the layer that `only` names (empty: the only one there is), the fastest first: measured ones
/// where `measured`, else predicted. Throws BadInput where the records have several layers, or none of that name.
std::vector<TimedCase> timed_cases(const std::string& path, const std::string& only, bool measured);

/// Returns the layer, with its fastest case and the fastest that the framework runs: schedules that it runs exactly
/// come before close ones, and of either kind measured cases before predicted ones. Throws BadInput where neither has
/// one.
TunedLayer tuned_layer(const ExportOptions& options, const verbs::Framework& runs);

/// Says the notes on stderr where the export goes to a file; elsewhere its reader sees them.
void log_notes(const ExportOptions& options, const TunedLayer& tuned);

}  // namespace moe::exchange
