#include "commands/report/record_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "commands/shared/record_files.h"
#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"
#include "moe/shape/layer_file.h"

namespace moe::report {
namespace {

constexpr size_t kMinForQuartiles = 4;  // passes; with fewer, whiskers are the least and the largest time

std::string text_or(const Fields& fields, std::string_view name, const std::string& otherwise = {}) {
  const std::string* found = fields.find_text(name);
  return found != nullptr ? *found : otherwise;
}

double number_or_nan(const Fields& fields, std::string_view name) {
  return fields.find_number(name).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string first_part(const std::string& key) { return key.substr(0, key.find('/')); }

struct Whiskers {
  double low = 0, high = 0;
  size_t passes = 0;
};

// Returns the quartiles over passes of the slowest rank's time; with few passes, the least and the most.
std::optional<Whiskers> whiskers_of(const CaseRecord& record, std::string_view name) {
  const Samples* samples = find_samples(record, name);
  if (samples == nullptr) return std::nullopt;
  const std::vector<double> slowest = max_over_ranks(samples->values);
  const double beside = slowest.size() < kMinForQuartiles ? 0 : 0.25;
  return Whiskers{quantile(slowest, beside), quantile(slowest, 1 - beside), slowest.size()};
}

// Returns whether `is` is true for the schedule or for one of its variants, which means that it uses the flag.
bool reads(const std::string& name, bool (*is)(const Schedule&)) {
  const ScheduleTable all = all_schedules();
  const auto found = std::ranges::find(all, name, &Schedule::name);
  return found != all.end() &&
         (is(*found) || std::ranges::any_of(found->variants, [&](const Schedule* one) { return is(*one); }));
}

// Adds a task of any type of timeline.
template <class Task>
void add_task(const Task& task, Columns& columns) {
  columns.add_row();
  columns.set("kind", task.kind);
  columns.set("phase", task.phase);
  columns.set("lane", task.lane);
  columns.set("chunk", task.chunk);
  columns.set("chunks", task.chunks);
  columns.set("start_s", rounded(task.start_s));
  columns.set("end_s", rounded(task.end_s));
}

Json task_columns(const std::vector<TaskTimes>& tasks) {
  Columns columns;
  for (const TaskTimes& task : tasks) add_task(task, columns);
  return columns.json();
}

Json task_columns(const MeasuredTimeline& timeline) {
  Columns columns;
  for (const MeasuredTask& task : timeline.tasks) {
    add_task(task, columns);
    if (!timeline.predicted) continue;
    columns.set("predicted_start_s", rounded(task.predicted_start_s));
    columns.set("predicted_end_s", rounded(task.predicted_end_s));
  }
  return columns.json();
}

}  // namespace

std::string series_of(const CaseRecord& operation) {
  const Fields& of = operation.parameters;
  if (!of.has("bytes") && !of.has("flops")) return {};
  const std::string op = text_or(of, "op"), phase = text_or(of, "phase"), algorithm = text_or(of, "algorithm");
  if (op == "task") return {};
  if (op == "gemm") return fmt::format("gemm {}", text_or(of, "dtype"));
  if (op == "module") {
    const double seq = number_or_nan(of, "seq");
    return fmt::format("{} {}{}", text_or(of, "name"), phase, seq > 0 ? fmt::format(" {:.0f}", seq) : "");
  }
  return fmt::format("{} {} {:.0f}{}", op, text_or(of, "network"), number_or_nan(of, "ranks"),
                     algorithm.empty() || algorithm == "direct" ? "" : " " + algorithm);
}

RecordTables::RecordTables(const std::vector<commands::FileRun>& files) {
  others_.resize(files.size());
  for (size_t run = 0; run < files.size(); ++run)
    for (const CaseRecord& record : files[run].run.cases) add(record, run);
}

void RecordTables::add(const CaseRecord& record, size_t run) {
  const std::string kind = first_part(record.key);
  if ((kind == "plan" || kind == "run" || kind == "simulate") && record.parameters.has("layer"))
    add_layer_case(record, run);
  else if (kind == "run" && record.parameters.has("model"))
    add_model(record, run);
  else if (kind == "op" && !series_of(record).empty())
    add_operation(record, run);
  else if (record.parameters.has("pair") && record.parameters.has("arm"))
    add_launch(record, run);
  else if (record.parameters.has("case") && record.summary.has("verdict"))
    verdicts_[{run, text_or(record.parameters, "case")}] = object_of(record.summary);
  else if (kind == "reproduce" && record.parameters.has("table"))
    add_published(record, run);
  else if (!record.answer.empty())
    add_answer(record, run);
  else
    ++others_[run][kind];
}

size_t RecordTables::layer_of(const CaseRecord& record, size_t run) {
  const std::string& name = record.parameters.text("layer", record.where);
  const auto [known, fresh] = layer_ids_.try_emplace({run, name}, layers_.size());
  if (fresh) layers_.push_back({run, name, record.parameters});
  return known->second;
}

// A schedule that was planned and then ran has a single row, that of the run, whose chunks are whole rows.
void RecordTables::add_layer_case(const CaseRecord& record, size_t run) {
  const bool ran = record.key.starts_with("run/");
  const size_t layer = layer_of(record, run);
  LayerEntry& entry = layers_[layer];
  // Runs at degrees other than the schedule's own have no row: "run/LAYER/SCHEDULE/r3".
  if (ran && record.key != fmt::format("run/{}/{}", entry.name, record.schedule)) {
    ++others_[run]["run of another degree"];
    return;
  }
  const auto [known, fresh] = row_ids_.try_emplace({layer, record.schedule}, rows_.size());
  const size_t row = known->second;
  if (fresh) rows_.push_back({layer, record.schedule});
  if (fresh) cells_.add_row();
  const bool ok = record.status == CaseStatus::ok;
  const double predicted_s = number_or_nan(record.prediction, "total_s");
  if (!ran && ok && predicted_s > 0) {
    rows_[row].planned_s = predicted_s;
    rows_[row].planned_rounding = text_or(record.parameters, "capacity_rounding");
    rows_[row].plan = &record;
  }
  if (fresh || ran || !rows_[row].ran) {
    cells_.clear(row);  // a run has other columns than a plan
    set_cells(record, row);
    const CaseRecord* plan = rows_[row].plan;
    rows_[row] = {layer, record.schedule, commands::degrees_of(record), record.parameters.has("plan"), ok,
                  ran,   predicted_s,     rows_[row].planned_s,         rows_[row].planned_rounding,   std::nullopt};
    rows_[row].plan = plan;
    if (ok && !record.measured_timeline.tasks.empty()) rows_[row].timeline = &record.measured_timeline;
    if (const double total_s = number_or_nan(record.summary, "total_s"); ok && total_s > 0)
      rows_[row].measured_s = total_s;
    if (ran) entry.parameters = record.parameters;
    entry.measured |= ok && ran;
  }
  if (!rows_[row].planned_s) return;
  cells_.set(row, "planned_total_s", rounded(*rows_[row].planned_s));
  cells_.set(row, "planned_rounding", rows_[row].planned_rounding);
}

void RecordTables::set_cells(const CaseRecord& record, size_t row) {
  const bool ok = record.status == CaseStatus::ok;
  const auto set = [&](std::string_view column, Json value) { cells_.set(row, column, std::move(value)); };
  set("layer", rows_[row].layer);
  set("schedule", record.schedule);
  set("status", name_of(record.status));
  set("reason", record.reason.empty() ? Json() : Json(record.reason));
  set("degree_forward", record.degree_forward);
  set("degree_backward", record.degree_backward);
  set("capacity_rounding", text_or(record.parameters, "capacity_rounding"));
  if (record.parameters.has("plan")) set("plan", text_or(record.parameters, "plan"));
  if (reads(record.schedule, sends_pieces))
    set("micro_op_bytes", rounded(number_or_nan(record.parameters, "micro_op_bytes")));
  if (reads(record.schedule, [](const Schedule& one) { return one.flow == Flow::dropped; }))
    set("min_chunk_bytes", rounded(number_or_nan(record.parameters, "min_chunk_bytes")));
  set("emulated", record.emulated);
  set("dilation", rounded(record.dilation));
  for (const char* name : {"forward_s", "backward_s", "total_s", "gar_in_moe_bytes", "memory_bytes", "degree_bound_s",
                           "head_s", "expert_sums_s"})
    if (record.prediction.has(name))
      set(fmt::format("predicted_{}", name), rounded(number_or_nan(record.prediction, name)));
  if (record.prediction.has("weak_rows")) set("weak_rows", text_or(record.prediction, "weak_rows"));
  if (record.bound_s) set("bound_s", rounded(*record.bound_s));
  for (const char* name : {"forward_s", "backward_s", "total_s", "peak_bytes", "worst_error", "overrun_share"})
    set(fmt::format("measured_{}", name), ok ? rounded(number_or_nan(record.summary, name)) : Json());
  const auto whiskers = ok ? whiskers_of(record, "total_s") : std::nullopt;
  set("low_s", whiskers ? rounded(whiskers->low) : Json());
  set("high_s", whiskers ? rounded(whiskers->high) : Json());
  set("passes", whiskers ? Json(whiskers->passes) : Json());
  const auto likely = ok ? median_interval_s(record) : std::nullopt;
  set("likely_low_s", likely ? rounded(likely->low) : Json());
  set("likely_high_s", likely ? rounded(likely->high) : Json());
  if (!record.timeline.empty()) timelines_.push_back({{"row", row}, {"tasks", task_columns(record.timeline)}});
}

void RecordTables::add_operation(const CaseRecord& record, size_t run) {
  const Fields& of = record.parameters;
  const bool bytes = of.has("bytes");
  operations_.add_row();
  operations_.set("run", run);
  operations_.set("key", record.key);
  operations_.set("series", series_of(record));
  operations_.set("status", name_of(record.status));
  operations_.set("unit", bytes ? "bytes" : "flops");
  operations_.set("size", rounded(number_or_nan(of, bytes ? "bytes" : "flops")));
  operations_.set("starts", of.has("gemms") ? rounded(number_or_nan(of, "gemms")) : Json(1));
  operations_.set("wire_bytes", rounded(number_or_nan(of, "wire_bytes")));
  operations_.set("emulated", record.emulated);
  for (const char* name : {"median_s", "least_s", "most_s"})
    operations_.set(name, rounded(number_or_nan(record.summary, name)));
  operations_.set("modelled_s", rounded(number_or_nan(record.prediction, "median_s")));
}

void RecordTables::add_model(const CaseRecord& record, size_t run) {
  Json model{{"run", run},
             {"parameters", object_of(record.parameters)},
             {"schedule", record.schedule},
             {"status", name_of(record.status)},
             {"reason", record.reason},
             {"degree_forward", record.degree_forward},
             {"degree_backward", record.degree_backward},
             {"emulated", record.emulated},
             {"predicted_s", rounded(number_or_nan(record.prediction, "total_s"))},
             {"measured_s", rounded(number_or_nan(record.summary, "total_s"))},
             {"low_s", rounded(number_or_nan(record.summary, "least_total_s"))},
             {"high_s", rounded(number_or_nan(record.summary, "most_total_s"))},
             {"held_out_loss", rounded(number_or_nan(record.summary, "held_out_loss"))},
             {"loss", Json::array()}};
  if (const auto whiskers = whiskers_of(record, "total_s")) {
    model["low_s"] = rounded(whiskers->low);
    model["high_s"] = rounded(whiskers->high);
  }
  if (const Samples* loss = find_samples(record, "loss"))
    for (const std::vector<double>& step : loss->values)
      model["loss"].push_back(step.empty() ? Json() : rounded(step.front()));
  models_.push_back(std::move(model));
}

void RecordTables::add_launch(const CaseRecord& record, size_t run) {
  const double seconds = number_or_nan(record.summary, "median_s");
  auto& pairs = launches_[{run, text_or(record.parameters, "case", record.key)}];
  auto& pair = pairs[record.parameters.whole("pair", record.where)];
  (text_or(record.parameters, "arm") == "base" ? pair.first : pair.second) = seconds;  // self-test's head is "again"
}

// Adds a row for each figure that is printed or computed.
void RecordTables::add_published(const CaseRecord& record, size_t run) {
  const std::string table = text_or(record.parameters, "table");
  std::set<std::string> names;
  for (const Fields* fields : {&record.summary, &record.prediction})
    for (const auto& [name, value] : *fields)
      if (std::isfinite(number_or_nan(*fields, name))) names.insert(name);
  for (const std::string& name : names) {
    published_.add_row();
    published_.set("run", run);
    published_.set("table", table);
    published_.set("what", record.key.substr(std::min(record.key.size(), fmt::format("reproduce/{}/", table).size())));
    published_.set("figure", name);
    published_.set("published", rounded(number_or_nan(record.summary, name)));
    published_.set("computed", rounded(number_or_nan(record.prediction, name)));
    published_.set("reason", record.reason);
  }
}

void RecordTables::add_answer(const CaseRecord& record, size_t run) {
  Json parts = Json::array();
  for (const AnswerPart& part : record.answer)
    parts.push_back({{"label", part.label}, {"items", part.items}, {"table", part.table}});
  answers_.push_back({{"run", run},
                      {"layer", text_or(record.parameters, "layer")},
                      {"schedule", record.schedule},
                      {"parts", std::move(parts)}});
}

Json RecordTables::layers_json() const {
  Columns columns;
  for (const LayerEntry& layer : layers_) {
    columns.add_row();
    columns.set("run", layer.run);
    columns.set("measured", layer.measured);
    for (const auto& [name, value] : layer.parameters) columns.set(name, cell_of(value));
  }
  return columns.json();
}

Json RecordTables::timelines_json(const std::vector<size_t>& layers) const {
  Json all = timelines_;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const MeasuredTimeline* timeline = rows_[row].timeline;
    if (timeline == nullptr || std::ranges::find(layers, rows_[row].layer) == layers.end()) continue;
    all.push_back({{"row", row}, {"rank", timeline->rank}, {"tasks", task_columns(*timeline)}});
  }
  return all;
}

Json RecordTables::pairs_json() const {
  Json all = Json::array();
  for (const auto& [of, pairs] : launches_) {
    Json base = Json::array(), head = Json::array();
    for (const auto& [pair, seconds] : pairs) {
      if (!(seconds.first > 0 && seconds.second > 0)) continue;
      base.push_back(rounded(seconds.first));
      head.push_back(rounded(seconds.second));
    }
    const auto verdict = verdicts_.find(of);
    all.push_back({{"case", of.second},
                   {"run", of.first},
                   {"base_s", std::move(base)},
                   {"head_s", std::move(head)},
                   {"verdict", verdict == verdicts_.end() ? Json() : verdict->second}});
  }
  return all;
}

namespace {

// Returns the flags that describe a layer's shape, by the names of their columns: for a switch the cell that turns it
// on, for other flags the default value, which may be left out.
Json shape_flags() {
  Json flags = Json::array();
  const LayerShape usual;
  for_each_layer_field([&]<class Value>(const LayerField<Value>& field) {
    Json& flag = flags.emplace_back(Json{{"name", field.key}, {"flag", field.flag()}});
    if constexpr (std::same_as<Value, bool>)
      flag["given"] = usual.*field.member ? "no" : "yes";
    else if constexpr (std::same_as<Value, double>)
      flag["usual"] = usual.*field.member;
  });
  flags.push_back({{"name", "capacity_rounding"}, {"flag", "--capacity-rounding"}});
  for (const std::string_view key : with(kParallelKeys, {"zero", "recompute", "offload"}))
    flags.push_back({{"name", key}, {"flag", fmt::format("--{}", key)}});
  return flags;
}

}  // namespace

Json RecordTables::json(const std::vector<size_t>& layers) const {
  return {{"answers", answers_},   {"layers", layers_json()},
          {"rows", cells_.json()}, {"operations", operations_.json()},
          {"models", models_},     {"timelines", timelines_json(layers)},
          {"pairs", pairs_json()}, {"published", published_.json()},
          {"others", others_},     {"shape_flags", shape_flags()}};
}

}  // namespace moe::report
