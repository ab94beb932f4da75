#pragma once
// Tunes every layer of a grid under every schedule on one profile: the planning half of `tune`.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commands/shared/record_files.h"
#include "moe/record/record.h"
#include "moe/record/writer.h"
#include "moe/search/degrees.h"
#include "moe/shape/grid.h"

namespace moe::commands {

struct SweepRow {
  std::string layer;
  LayerCase shape;
  double memory_bytes = 0;                       // needed on one rank to train the layer; results have their own
  std::optional<Refusal> refusal;                // why it can't be shaped or priced on this cluster
  std::vector<LayerResult> results;              // by schedule, in the order asked for; without those that are refused
  std::map<std::string_view, Refusal> refusals;  // of schedules that this layer or profile does not allow
  PriceNotes notes;
  bool is_planned() const { return !refusal; }
  const LayerResult* find(std::string_view schedule) const;
};

struct SweepRequest {
  const Profile& profile;
  const Grid& grid;
  std::vector<const Schedule*> schedules;
  DegreeChoice degrees;
  PricingOptions pricing;
};

/// Returns one row a grid layer, in grid order.
std::vector<SweepRow> sweep(const SweepRequest& request);

/// The layers whose prices have notes of one label, and what the notes are about.
struct NotedLayers {
  int layers = 0;
  std::set<std::string> about = {};
};
/// Returns the noted layers by the label of their notes.
std::map<std::string, NotedLayers> noted_layers(const std::vector<SweepRow>& rows);
/// Returns the number of layers that each weak row prices, by what its note is about.
std::map<std::string, int> layers_by_weak_row(const std::vector<SweepRow>& rows);

/// Returns whether a row whose fit is marked prices any layer.
bool priced_by_weak_rows(const std::vector<SweepRow>& rows);

/// Shapes a grid's layer on a cluster. Throws BadInput as complete does.
LayerCase shaped(const GridLayer& layer, const Grid& grid, const Profile& cluster);

/// Sums up one schedule over the rows that have it.
struct ScheduleSummary {
  std::string_view schedule;
  int layers = 0;
  double speedup = 0;   // mean of tutel's forward + backward over this one's, over the layers that have both; 0: none
  int compared = 0;     // such layers
  double of_bound = 0;  // mean over layers of the least bound of any swept schedule over this one's time
  double of_own = 0;    // the same of its own bound
  int apart = 0;        // layers with r_f != r_b
  std::map<int, int> degrees_forward, degrees_backward;  // degree -> layers
};
std::vector<ScheduleSummary> summarise(const std::vector<SweepRow>& rows,
                                       const std::vector<const Schedule*>& schedules);

/// Returns "2", or "1-3": the least and the most of some degrees.
std::string degree_range(int least, int most);
/// Returns "1-3, median 2": the degrees chosen, by how many layers.
std::string degree_range(const std::map<int, int>& degrees);

// Planned layers as records.

/// Returns `out`, or results/VERB-CLUSTER.jsonl where the user named no file.
std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster);

/// Returns the record of a plan that nothing ran: schedule, degrees, prediction and bound.
CaseRecord planned_record(std::string key, const LayerResult& result);

/// Appends one record for each layer and schedule, but those that the writer has already; those of a layer are one
/// line.
void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster, const DegreeChoice& degrees = {});

}  // namespace moe::commands
