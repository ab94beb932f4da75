#pragma once
// The model that a verb's flags request, or their layer as a model with one layer.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/selection.h"
#include "moe/plan/memory.h"
#include "moe/prices/profile.h"
#include "moe/record/record.h"
#include "moe/schedule/model_plan.h"
#include "moe/shape/model_traits.h"

namespace moe::commands {

struct ModelFlags {
  std::string model;                    // NAME or FILE; empty: the flags' layer
  std::optional<int> layers;            // number of layers; none: the model's, or 1
  std::optional<int> micro_batches;     // number of micro-batches, each with the layer's batch; none: 1
  std::optional<std::string> pipeline;  // gpipe | 1f1b; none: 1f1b on one stage and with virtual stages, else gpipe
  std::optional<int> virtual_stages;    // model chunks per stage; none: 1
  /// Key of the framework whose rules count memory (trainer_of()); all but moetune's run several micro-batches as 1F1B.
  std::string framework = {};
  /// Returns whether a single layer with one micro-batch is requested rather than a model, which some flags require.
  bool is_one_layer() const { return model.empty() && !layers && micro_batches.value_or(1) == 1; }
  bool operator==(const ModelFlags&) const = default;
};

struct ChosenModel {
  std::string name;  // name of the model; empty: a layer
  ModelShape model;
  bool stack = false;      // planned as a model, even if it has one layer: ModelFlags::is_one_layer was false
  int whole_layers = 1;    // layers of the whole model, independent of --layers
  int64_t vocabulary = 0;  // tokens of the vocabulary; 0: unknown
  bool tied_embedding = false;
  ModelTraits traits = {};  // properties of the published model that plans leave out
  /// What differs on this cluster: "E 8, which the model leaves open; L 256, elsewhere 1024". Empty: nothing.
  std::string model_on_cluster = {};
  std::string origin = {};  // "config.json of qwen3_moe"; empty: a model file
  std::vector<std::string> replaced_mixers =
      {};  // layers of the published model that plans treat as attention (published_model.h)
  /// FLOPs of the published model over those of the planned one, which may have more attention.
  double flops_share = 1;
};

/// Returns the type of a layer that names none: float32, or bfloat16 if the profile prices that alone.
DType default_dtype(const Profile& profile);

/// Returns the model on that cluster; the selection's layer flags override its own. Throws BadInput naming the flag.
ChosenModel chosen_model(const ModelFlags& flags, const Selection& selection, const Profile& profile);

/// Returns the same model as the flags' framework runs it: torchtitan shards states unless a flag says otherwise.
/// Throws BadInput where the framework refuses the shape.
ChosenModel framework_model(const ModelFlags& flags, const Selection& selection, const Profile& profile);

/// Returns the schedules that a plan of the model can have, including those of whole iterations if it has several
/// layers or micro-batches.
ScheduleTable possible_schedules(const ChosenModel& chosen);

/// Adds the model's properties besides its layers, as records have them: "vocabulary" and "tied_embedding", if known,
/// "origin" and the keys of ModelTraits.
void record_embedding_and_head(Fields& parameters, const ChosenModel& chosen);
/// Returns the traits that record_embedding_and_head() added. Throws BadInput "WHERE: NAME: ...".
ModelTraits recorded_traits(const Fields& parameters, const std::string& where);

/// Returns the memory of a request for the model's layers, including its embedding and output projection.
MemoryEstimate memory_of(const ChosenModel& chosen, MemoryRequest request);
/// Returns the choice restricted to plans that fit `capacity` bytes of a rank, with the whole model counted. If the
/// capacity is unknown, everything fits.
DegreeChoice within_memory(DegreeChoice choice, std::optional<double> capacity, const ChosenModel& chosen);

}  // namespace moe::commands
