#include "tuner/answer/planned_answer.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "verbs/sweep_records.h"
#include "verbs/trace_file.h"

namespace moe::tuner {
namespace {

constexpr size_t kDrawn = 3;

// Flags that say which cluster and layer, as simulate and the benches have them too.
constexpr std::array<std::string_view, 33> kWhatFlags{"--cluster",
                                                      "--model",
                                                      "--layers",
                                                      "--micro-batches",
                                                      "--pipeline",
                                                      "--layer",
                                                      "--batch",
                                                      "--seq",
                                                      "--model-dim",
                                                      "--hidden",
                                                      "--heads",
                                                      "--kv-heads",
                                                      "--experts",
                                                      "--top-k",
                                                      "--ffn",
                                                      "--gate",
                                                      "--capacity-factor",
                                                      "--capacity-rounding",
                                                      "--order",
                                                      "--dispatcher",
                                                      "--hook",
                                                      "--norm",
                                                      "--no-residual",
                                                      "--aux-loss",
                                                      "--z-loss",
                                                      "--dtype",
                                                      "--dp",
                                                      "--mp",
                                                      "--ep",
                                                      "--esp",
                                                      "--pp",
                                                      "--placement",
                                                      "--nearest"};
constexpr std::array<std::string_view, 2> kWithoutValue{"--no-residual", "--nearest"};

RankingRequest request_of(const TuneOptions& options, const Answer& answer) {
  return {*answer.chosen, *answer.profile, options.selection.degrees, pricing_of(options)};
}

CaseRecord record_of(const RankedSchedule& row, const std::string& name) {
  CaseRecord record;
  record.key = fmt::format("plan/{}/{}", name, row.schedule->name);
  record.schedule = row.schedule->name;
  record.backend = "none";
  if (!row.refused.empty()) {
    record.status = CaseStatus::unsupported;
    record.reason = row.refused;
    return record;
  }
  record.degree_forward = row.degree_forward;
  record.degree_backward = row.degrees_backward.second;
  record.prediction = {{"forward_s", row.forward_s},
                       {"backward_s", row.backward_s},
                       {"total_s", row.total_s()},
                       {"gar_in_moe_bytes", row.gar_in_moe_bytes},
                       {"memory_bytes", row.memory_bytes}};
  if (const std::string weak = weak_rows(row.notes); !weak.empty()) record.prediction.set("weak_rows", weak);
  record.bound_s = row.bound_s;
  return record;
}

}  // namespace

PricingOptions pricing_of(const TuneOptions& options) {
  return options.any_shape ? PricingOptions{true, "--shape"} : pricing_of(options.selection);
}

Subject subject_of(const TuneOptions& options, const Profile& cluster) {
  Subject subject{chosen_model(options.model, options.selection, cluster), {}, {}, {}};
  subject.name = subject.chosen.name.empty() ? describe(subject.chosen.model.shape.layer) : subject.chosen.name;
  if (!options.model.model.empty()) subject.files.push_back(find_config("models", options.model.model));
  if (!options.selection.layer_file.empty())
    subject.files.push_back(find_config("layers", options.selection.layer_file));
  if (!options.any_shape) return subject;
  subject.shapes = find_shapes({.chosen = subject.chosen,
                                .profile = cluster,
                                .schedules = chosen_schedules(options.selection),
                                .degrees = options.selection.degrees,
                                .fixed = options.selection.layer,
                                .fixed_pipeline = options.model.micro_batches > 1 || options.model.pipeline});
  subject.chosen.model = subject.shapes->ranked.front().model;
  return subject;
}

void plan_answer(const TuneOptions& options, Answer& answer) {
  const RankingRequest request = request_of(options, answer);
  answer.ranking = rank(request, chosen_schedules(options.selection));
  answer.top = options.top;
  if (!options.current.empty()) {
    const CurrentSchedule current = current_from(options.current);
    RankingRequest asked = request;
    asked.degrees.forward = current.degree_forward, asked.degrees.backward = current.degree_backward;
    answer.current = ranked(asked, *current.schedule);
  }
  answer.neighbours = neighbours_of(options, answer);
}

std::vector<Neighbour> neighbours_of(const TuneOptions& options, const Answer& answer) {
  return neighbours(request_of(options, answer), recommended(answer));
}

void append_ranking(RecordWriter& writer, const Answer& answer, const std::string& name, const DegreeChoice& degrees) {
  const ModelShape& model = answer.chosen->model;
  CaseGroup group{parameters_of(model.shape, answer.cluster, name, degrees), {}};
  group.parameters.set("layers", int64_t{model.layers});
  group.parameters.set("micro_batches", int64_t{model.micro_batches});
  for (const RankedSchedule& row : answer.ranking)
    if (writer.find(fmt::format("plan/{}/{}", name, row.schedule->name)) == nullptr)
      group.cases.push_back(record_of(row, name));
  if (!group.cases.empty()) writer.append(group);
}

void write_ranking_trace(const TuneOptions& options, const Answer& answer, const std::string& path) {
  const RankingRequest request = request_of(options, answer);
  std::vector<PlannedTimeline> planned;
  for (size_t i = 0; i < answer.ranking.size(); ++i) {
    const RankedSchedule& row = answer.ranking[i];
    const bool drawn = i < kDrawn || row.schedule->name == "tutel" || row.schedule->name == "ds-moe";
    if (drawn && row.refused.empty()) ranked(request, *row.schedule, &planned.emplace_back());
  }
  std::vector<TraceGroup> groups;
  for (const PlannedTimeline& p : planned) groups.push_back(trace_group(p.plan, p.timeline, answer.cluster));
  write_trace(groups, path);
}

std::string command_of(const std::string& verb, const TuneOptions& options, const RankedSchedule& row) {
  std::string text = "./moetune " + verb;
  const std::vector<std::string>& words = options.asked.argv;
  const auto among = [](const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view name = std::string_view(words[i]).substr(0, words[i].find('='));
    if (!among(kWhatFlags, name)) continue;
    text += ' ' + words[i];
    if (name.size() == words[i].size() && !among(kWithoutValue, name) && i + 1 < words.size()) text += ' ' + words[++i];
  }
  return text + fmt::format(" --schedule {}", row.schedule->name);
}

int run_planned_answer(const TuneOptions& options) {
  const Profile profile = chosen_profile(options.selection);
  const Subject subject = subject_of(options, profile);
  Answer answer{.cluster = profile.name,
                .place = fmt::format("{}: {} node{} x {} ranks", profile.name, profile.nodes,
                                     profile.nodes == 1 ? "" : "s", profile.ranks_per_node),
                .chosen = &subject.chosen,
                .shapes = subject.shapes ? &*subject.shapes : nullptr,
                .profile = &profile,
                .no_trials = "nothing was run (--no-verify)",
                .records_path = records_path(options.out, "plan", profile.name),
                .trace_path = options.trace};
  plan_answer(options, answer);
  std::vector<std::string> files = subject.files;
  files.push_back(profile.file);
  RecordWriter writer(answer.records_path, {options.asked, std::move(files), {}});
  append_ranking(writer, answer, subject.name, options.selection.degrees);
  writer.end();
  if (!options.trace.empty()) write_ranking_trace(options, answer, options.trace);
  answer.next = command_of("simulate", options, recommended(answer)) + " --trace lanes.json";
  fmt::print("{}", options.json ? json_of(answer).dump(1) + '\n' : text_of(answer));
  return 0;
}

}  // namespace moe::tuner
