#include "tuner/tune.h"

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "commands/shared/pick_layers.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/results_json.h"
#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "moe/simulator/fluid_replay.h"
#include "tuner/answer/planned_answer.h"
#include "tuner/sweep_report.h"

namespace moe::tuner {
namespace {

// Writes the predicted timelines of one planned layer, under every schedule.
void write_planned_trace(const commands::TraceFlags& trace, const commands::SweepRequest& request,
                         const std::vector<commands::SweepRow>& rows) {
  std::vector<const commands::SweepRow*> planned;
  std::vector<LayerShape> layers;
  for (const commands::SweepRow& row : rows)
    if (row.is_planned()) planned.push_back(&row), layers.push_back(row.shape.layer);
  require<BadInput>(!planned.empty(), "--trace: no layer of {} can be planned on {}", request.grid.name,
                    request.profile.name);
  const commands::SweepRow& row = *planned[commands::pick_layers(layers, 1).front()];
  const LayerPricer pricer(request.profile, row.shape, request.pricing);
  std::vector<Plan> plans;
  std::vector<Timeline> timelines;
  for (const LayerResult& result : row.results) {
    plans.push_back(build_plan(find_schedule(result.schedule), row.shape, result.decision));
    timelines.push_back(timeline_of(plans.back(), price(pricer, plans.back()), request.profile.contention));
  }
  std::vector<TraceGroup> groups;
  for (size_t i = 0; i < plans.size(); ++i) groups.push_back(trace_group(plans[i], timelines[i], request.profile.name));
  commands::write_trace(groups, trace);
}

}  // namespace

CaseRecord answer_record(const std::string& name, const std::string& cluster, std::vector<AnswerPart> parts) {
  CaseRecord record;
  record.key = "answer/" + name;
  record.parameters = {{"cluster", cluster}};
  record.backend = "none";
  record.answer = std::move(parts);
  return record;
}

bool names_one_model(const TuneOptions& options) {
  const commands::Selection& s = options.selection;
  const bool one = !options.model.is_one_layer() || !s.layer_file.empty() || s.layer != commands::LayerFlags{};
  const bool states = s.layer.zero || s.layer.recompute || s.layer.offload;
  require<BadInput>(!states || s.grid.empty(),
                    "--zero, --recompute, --offload: found a grid, expected one layer or model");
  require<BadInput>(!one || s.grid.empty(), "--grid: found {} with a layer or a model, expected only one of them",
                    s.grid);
  return one;
}

int run_planned_tune(const TuneOptions& options) {
  if (names_one_model(options)) return run_planned_answer(options);
  const Profile profile = commands::chosen_profile(options.selection);
  const Grid grid = commands::grid_of(options.selection, profile.name);
  const auto chosen = commands::chosen_schedules(options.selection, schedules(), commands::kAllSchedules);
  for (const Schedule* const schedule : chosen) check_one_layer(*schedule);
  const auto start = std::chrono::steady_clock::now();
  const commands::SweepRequest request{profile, grid, chosen, options.selection.degrees,
                                       commands::pricing_of(options.selection)};
  const auto rows = commands::sweep(request);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;

  const std::string path = commands::records_path(options.out, "plan", profile.name);
  std::vector<std::string> files = files_of(grid);
  files.push_back(profile.file);
  const auto write_records = [&] {
    RecordWriter writer(path, {options.invocation, files, {}});
    commands::append_rows(writer, rows, chosen, profile.name, request.degrees);
    writer.append(answer_record(grid.name, profile.name, {sweep_part(rows, request)}));
    writer.end();
  };
  if (!options.trace.file.empty()) write_planned_trace(options.trace, request, rows);
  const int code = options.strict && priced_by_weak_rows(rows) ? kDoubtful : kOk;
  const auto strategies = compare_strategies(request, rows, options.strategy_layers);
  const Json document{{"cluster", profile.name},
                      {"grid", grid.name},
                      {"records", path},
                      {"layers", to_json(rows)},
                      {"strategies", to_json(strategies)}};
  const std::string text =
      fmt::format("{} layers of {} on {}, simulated ({}), degrees exact, planned in {}\n\n{}\n{}records: {}\n",
                  rows.size(), grid.name, profile.name, name_of(grid.rounding), human_seconds(took.count()),
                  sweep_report(rows, request), strategies.empty() ? "" : strategy_table(strategies) + '\n', path);
  print_with_records(write_records, [&] {
    fmt::print("{}", options.json ? document_text(document) + '\n' : text_within_columns(text));
  });
  return code;
}

}  // namespace moe::tuner
