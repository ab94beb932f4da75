#pragma once
// The model that a verb's flags ask for, or its layer as a model of one.
#include <optional>
#include <string>

#include "commands/shared/selection.h"
#include "moe/plan/memory.h"
#include "moe/prices/profile.h"
#include "moe/record/reader.h"
#include "moe/record/record.h"
#include "moe/schedule/model_plan.h"

namespace moe::commands {

struct ModelFlags {
  std::string model;                    // NAME or FILE; empty: the layer
  std::optional<int> layers;            // empty: the model's, or 1
  std::optional<int> micro_batches;     // of the layer's batch each; empty: 1
  std::optional<std::string> pipeline;  // gpipe | 1f1b; empty: 1f1b on one stage and with virtual stages, else gpipe
  std::optional<int> virtual_stages;    // chunks of layers a stage; empty: 1
  Trainer trainer = Trainer::moetune;   // by whose rules memory is counted; others run several micro-batches as 1F1B
  /// Returns whether one layer, once, is asked for: no model, which some flags need.
  bool one_layer() const { return model.empty() && !layers && micro_batches.value_or(1) == 1; }
  bool operator==(const ModelFlags&) const = default;
};

struct ChosenModel {
  std::string name;  // empty: a layer
  ModelShape model;
  bool stack = false;      // planned as a model, even of one layer: ModelFlags::one_layer was false
  int whole_layers = 1;    // that the model has, whatever --layers says
  int64_t vocabulary = 0;  // 0: unknown
  bool tied_embedding = false;
  bool qk_norm = false;  // of the published model; plans leave it out
  /// What is so on this cluster alone: "E 8, which the model leaves open; L 256, elsewhere 1024". Empty: nothing.
  std::string on_cluster = {};
  std::string origin = {};  // "config.json of qwen3_moe"; empty: a model file
};

/// Returns the model on that cluster, the selection's layer flags over its own. Throws BadInput naming the flag.
ChosenModel chosen_model(const ModelFlags& flags, const Selection& selection, const Profile& profile);

/// Returns the schedules that a plan of the model may have: of whole iterations too if it has several layers or
/// micro-batches.
ScheduleTable possible_schedules(const ChosenModel& chosen);

/// Adds what records say of the model beside its layers: "vocabulary" and "tied_embedding", if known, "qk_norm" and
/// "origin".
void record_ends(Fields& parameters, const ChosenModel& chosen);

/// Returns what a request of the model's layers takes with the model's embedding and output projection.
MemoryEstimate memory_of(const ChosenModel& chosen, MemoryRequest request);
/// Returns the choice among what fits `capacity` bytes of a rank, all of the model counted; unknown: whatever is chosen
/// fits.
DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ChosenModel& chosen);

// What `modelbench --json` printed, as records.

/// Returns the schedules of one document, or of a list of them, as a run without a time stamp, which no document has.
/// Throws BadInput "FILE: found ..., expected ..." for any other text.
Run run_of_documents(const std::string& text, const std::string& file);

}  // namespace moe::commands
