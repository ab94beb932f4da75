#pragma once
// Tunes every layer of a grid under every schedule on one profile: the planning part of `tune`.
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
  double memory_bytes = 0;           // bytes on one rank to train this row's shape; results have their own
  std::optional<Refusal> refusal;    // why it can't be shaped or priced on this cluster
  std::vector<LayerResult> results;  // results in the order of the requested schedules, without refused ones
  std::map<std::string_view, Refusal>
      refusals;  // reasons of schedules that this layer or profile does not allow, by name
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

/// Returns one row for each layer of the grid, in the order of the grid.
std::vector<SweepRow> sweep(const SweepRequest& request);

/// The number of layers whose prices have notes with one label, and the subjects of these notes.
struct NotedLayers {
  int layers = 0;
  std::set<std::string> about = {};
};
/// Returns the noted layers by the label of their notes.
std::map<std::string, NotedLayers> noted_layers(const std::vector<SweepRow>& rows);
/// Returns the number of layers that each weak row prices, by the subject of its note.
std::map<std::string, int> layers_by_weak_row(const std::vector<SweepRow>& rows);

/// Returns whether a row with a marked fit prices any layer.
bool priced_by_weak_rows(const std::vector<SweepRow>& rows);

/// Shapes a grid's layer on a cluster. Throws BadInput like complete().
LayerCase shaped(const GridLayer& layer, const Grid& grid, const Profile& cluster);

/// The results of one schedule over the rows that have it.
struct ScheduleSummary {
  std::string_view schedule;
  int layers = 0;
  double speedup = 0;      // mean over layers of tutel's forward + backward over this schedule's; 0: no layer has both
  int compared = 0;        // number of layers with a result of tutel and of this schedule
  double bound_ratio = 0;  // mean over layers of the least lower bound of all swept schedules over this schedule's time
  double own_bound_ratio = 0;                            // the same with this schedule's own lower bound
  int differing_degrees = 0;                             // number of layers with r_f != r_b
  std::map<int, int> degrees_forward, degrees_backward;  // number of layers by degree
};
std::vector<ScheduleSummary> summarise(const std::vector<SweepRow>& rows,
                                       const std::vector<const Schedule*>& schedules);

/// Returns the range of degrees: "2", or "1-3".
std::string degree_range(int least, int most);
/// Returns the range and the median of the chosen degrees over layers: "1-3, median 2".
std::string degree_range(const std::map<int, int>& degrees);

// Planned layers as records.

/// Returns `out`, or results/VERB-CLUSTER.jsonl if the user named no file.
std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster);

/// Returns the record of a plan that was not run: schedule, degrees, prediction and bound.
CaseRecord planned_record(std::string key, const LayerResult& result);

/// Appends one record for each layer and schedule, except those that the writer has already. The records of a layer are
/// one line.
void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster, const DegreeChoice& degrees = {});

}  // namespace moe::commands
