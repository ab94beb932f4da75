#pragma once
// What a page shows of records, as tables: layers, operations, models, pairs of launches, published figures.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands/report/columns.h"
#include "commands/shared/record_files.h"
#include "moe/search/degrees.h"

namespace moe::report {

/// A layer of a run, with the parameters of its records.
struct LayerEntry {
  size_t run = 0;
  std::string name;
  Fields parameters;
  bool measured = false;
};

/// A schedule of a layer: what was planned, or where it ran what was predicted and measured.
struct LayerRow {
  size_t layer = 0;
  std::string schedule;
  DegreeChoice choice = {};   // what of the decision the record holds
  bool of_plan_file = false;  // parameter `plan`: only that file holds what it ran
  bool ok = false, ran = false;
  double predicted_s = 0;  // of the run, or where it did not run of the plan; NaN: not predicted
  /// The plan's, which may round rows otherwise than the run: all schedules of a layer were planned alike.
  std::optional<double> planned_s = {};
  std::string planned_rounding = {};
  std::optional<double> measured_s = {};
  const MeasuredTimeline* timeline = nullptr;  // of the files' records; where it ran and one is kept
  const CaseRecord* plan = nullptr;            // likewise; null: it has no plan that went well
};

class RecordTables {
 public:
  /// `files` must outlive it.
  explicit RecordTables(const std::vector<commands::FileRun>& files);

  const std::vector<LayerEntry>& layers() const { return layers_; }
  const std::vector<LayerRow>& rows() const { return rows_; }
  size_t operations() const { return operations_.rows(); }
  size_t models() const { return models_.size(); }
  /// Returns {"answers", "layers", "rows", "operations", "models", "timelines", "pairs", "published", "others"}. Of the
  /// timelines, {"row", "tasks"}, those that were measured have a "rank", and are there for `layers` alone (indices).
  Json json(const std::vector<size_t>& layers) const;

 private:
  void add(const CaseRecord& record, size_t run);
  void add_layer_case(const CaseRecord& record, size_t run);
  void set_cells(const CaseRecord& record, size_t row);
  void add_operation(const CaseRecord& record, size_t run);
  void add_model(const CaseRecord& record, size_t run);
  void add_launch(const CaseRecord& record, size_t run);
  void add_published(const CaseRecord& record, size_t run);
  void add_answer(const CaseRecord& record, size_t run);
  size_t layer_of(const CaseRecord& record, size_t run);
  Json layers_json() const;
  Json timelines_json(const std::vector<size_t>& layers) const;
  Json pairs_json() const;

  std::vector<LayerEntry> layers_;
  std::map<std::pair<size_t, std::string>, size_t> layer_ids_;  // by run and name
  std::vector<LayerRow> rows_;
  std::map<std::pair<size_t, std::string>, size_t> row_ids_;  // by layer and schedule
  std::map<std::pair<size_t, std::string>, Json> verdicts_;   // by run and case
  Columns cells_, operations_, published_;
  Json answers_ = Json::array(), models_ = Json::array(), timelines_ = Json::array();
  /// By run and case: pair -> base, head.
  std::map<std::pair<size_t, std::string>, std::map<int64_t, std::pair<double, double>>> launches_;
  std::vector<std::map<std::string, size_t>> others_;  // by run and the key's first part
};

/// Returns the name that a fitted row of this operation has (profile.h: row_name); empty where it has no size.
std::string series_of(const CaseRecord& operation);

}  // namespace moe::report
