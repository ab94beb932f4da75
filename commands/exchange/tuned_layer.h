#pragma once
// A layer's records, and the schedules among them that a framework can run.
#include <optional>
#include <string>
#include <vector>

#include "commands/exchange/exchange.h"
#include "commands/shared/frameworks.h"
#include "moe/plan/plan.h"
#include "moe/prices/profile.h"
#include "moe/shape/model_traits.h"
#include "moe/shape/shape.h"

namespace moe::exchange {

struct TimedCase {
  CaseRecord record;
  double seconds = 0;  // forward + backward
};

struct TunedLayer {
  std::string name;
  LayerCase shape;
  ModelShape
      model;  // model of the chosen record; 0 layers: unknown, because the record is of a run that may have cut them
  TimedCase fastest, chosen;       // fastest case of all, and fastest case that the framework runs
  std::vector<std::string> notes;  // lines about the choice and what it costs
  int64_t dense_hidden = 0;        // hidden units of the model's dense layers; 0: it has none
  std::string moe_layers = {};  // one digit per layer: 1, or 0 for a dense layer; empty: unknown, or no layer is dense
  ModelTraits traits = {};      // properties of the model that plans leave out; default: the record is of layers alone
};

/// Returns the ok cases of the layer `only` (empty: the only layer in the records), the fastest first, by measured
/// times if `measured`, else by predicted ones. Cases that tune planned for a single framework are left out, except
/// those of `framework`, its key. Throws BadInput if the records have several layers, or none of that name.
std::vector<TimedCase> timed_cases(const std::string& path, const std::string& only, bool measured,
                                   std::string_view framework = {});

/// Returns the layer with its fastest case and its chosen one: the case that tune planned for the framework, else the
/// fastest that the framework runs. Exact schedules come before close ones, and measured cases before predicted ones.
/// Throws BadInput if there is no such case.
TunedLayer tuned_layer(const ExportOptions& options, const commands::Framework& runs);

/// Prints the notes on stderr if the export goes to a file; otherwise the output contains them.
void log_notes(const ExportOptions& options, const TunedLayer& tuned);

/// The plan of a record, or of a file.
struct NamedPlan {
  Plan plan;
  std::optional<Profile> profile;  // profile that prices the plan; none: unknown
};

/// Returns whether the file is a single JSON object with a format, which plans are and records are not.
bool is_plan(const std::string& path);

/// Reads the file of a plan, or rebuilds the plan of the records' fastest case (or that of `options.schedule`). Some
/// decisions are not in records: the places of gradient pieces, orders of lanes, a choice among schedules. They are
/// searched again, at the record's degrees, on the profile of the record's cluster or of --cluster. Throws BadInput if
/// that profile is needed and unknown, and for the record of a plan that came from a file. Warns if the plan's time on
/// that profile differs from the record's.
NamedPlan plan_of(const ExportOptions& options);

}  // namespace moe::exchange
