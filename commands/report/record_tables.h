#pragma once
// The tables of a page: layers, operations, models, pairs of launches, published figures.
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

/// A schedule of a layer: its plan or, if it ran, its prediction and its measurement.
struct LayerRow {
  size_t layer = 0;
  std::string schedule;
  DegreeChoice choice = {};        // the part of the decision that the record holds
  bool is_from_plan_file = false;  // parameter `plan`: the plan that ran is only in that file
  bool ok = false, ran = false;
  double predicted_s = 0;  // prediction of the run or, if it did not run, of the plan; NaN: none
  /// Time of the plan, whose rounding of rows may differ from the run's; all schedules of a layer are planned alike.
  std::optional<double> planned_s = {};
  std::string planned_rounding = {};
  std::optional<double> measured_s = {};
  const MeasuredTimeline* timeline = nullptr;  // points into the files' records; null: it did not run, or none was kept
  const CaseRecord* plan = nullptr;            // points into the files' records; null: it has no successful plan
};

class RecordTables {
 public:
  /// `files` must outlive this object.
  explicit RecordTables(const std::vector<commands::FileRun>& files);

  const std::vector<LayerEntry>& layers() const { return layers_; }
  const std::vector<LayerRow>& rows() const { return rows_; }
  size_t operations() const { return operations_.rows(); }
  size_t models() const { return models_.size(); }
  /// Returns {"answers", "layers", "rows", "operations", "models", "timelines", "pairs", "published", "others"}.
  /// Timelines are {"row", "tasks"}; measured ones also have a "rank", and are only included for `layers` (indices).
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
  /// By run and case: the seconds of base and head for each pair.
  std::map<std::pair<size_t, std::string>, std::map<int64_t, std::pair<double, double>>> launches_;
  std::vector<std::map<std::string, size_t>> others_;  // by run and the key's first part
};

/// Returns the name of the fitted row of this operation (profile.h: row_name); empty if it has no size.
std::string series_of(const CaseRecord& operation);

}  // namespace moe::report
