#pragma once
// A layer's records, and which of its schedules someone else's framework can run.
#include <optional>
#include <string>
#include <vector>

#include "commands/exchange/exchange.h"
#include "commands/shared/frameworks.h"
#include "moe/plan/plan.h"
#include "moe/prices/profile.h"
#include "moe/shape/shape.h"

namespace moe::exchange {

struct TimedCase {
  CaseRecord record;
  double seconds = 0;  // forward + backward
};

struct TunedLayer {
  std::string name;
  LayerCase shape;
  ModelShape model;                // of that shape, as the chosen record says; 0 layers: it ran some of them
  TimedCase fastest, chosen;       // of all, and of what the framework runs
  std::vector<std::string> notes;  // what was chosen, and what that costs
  int64_t dense_hidden = 0;        // of the model's dense layers; 0: it has none
  std::string moe_layers = {};     // by layer 1, or 0 for a dense one; empty: not known, or none is dense
};

/// Returns the ok cases of the layer that `only` names (empty: the only one there is), the fastest first: measured ones
/// where `measured`, else predicted. Cases that tune planned for one framework alone are left out, but for those of
/// `framework`, its key. Throws BadInput where the records have several layers, or none of that name.
std::vector<TimedCase> timed_cases(const std::string& path, const std::string& only, bool measured,
                                   std::string_view framework = {});

/// Returns the layer, with its fastest case and the one that tune planned for the framework, else the fastest that the
/// framework runs: schedules that it runs exactly come before close ones, and of either kind measured cases before
/// predicted ones. Throws BadInput where there is none.
TunedLayer tuned_layer(const ExportOptions& options, const commands::Framework& runs);

/// Prints the notes on stderr if the export goes to a file; elsewhere its reader sees them.
void log_notes(const ExportOptions& options, const TunedLayer& tuned);

/// The plan that a record is of, or that a file has.
struct NamedPlan {
  Plan plan;
  std::optional<Profile> profile;  // that prices it; none: unknown
};

/// Returns whether the file is one JSON object with a format, as plans are and records are not.
bool is_plan(const std::string& path);

/// Reads a file of a plan, or plans what the records' fastest case (or that of `options.schedule`) decided. Some
/// decisions are in no record (where pieces of gradients go, orders of lanes, a choice among schedules); they are
/// searched again, at the record's degrees, on the profile of its cluster or of --cluster. Throws BadInput where that
/// profile is needed and unknown, and for the record of a plan that came from a file. What the plan takes on that
/// profile is compared with what the record says, and a warning says how far they are apart.
NamedPlan plan_of(const ExportOptions& options);

}  // namespace moe::exchange
