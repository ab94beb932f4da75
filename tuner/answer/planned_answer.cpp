#include "tuner/answer/planned_answer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "commands/shared/frameworks.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/text.h"
#include "moe/base/units.h"
#include "tuner/answer/current.h"
#include "tuner/answer/framework_plans.h"

namespace moe::tuner {
namespace {

constexpr size_t kDrawn = 3;
constexpr std::chrono::seconds kRankingTime{45};  // for the schedules of a given shape

RankingRequest request_of(const TuneOptions& options, const Answer& answer) {
  RankingRequest request{*answer.chosen, *answer.profile, options.selection.degrees, pricing_of(options)};
  if (answer.shapes == nullptr) {
    if (!options.run_all && options.top == 0) request.deadline = std::chrono::steady_clock::now() + kRankingTime;
    return request;
  }
  request.known = &answer.shapes->ranked.front().best;
  request.deadline = answer.shapes->deadline;
  return request;
}

std::string key_of(const Answer& answer, const RankedSchedule& row) {
  return fmt::format("plan/{}/{}", answer.name, row.schedule->name);
}

CaseRecord record_of(const RankedSchedule& row, const commands::ChosenModel& chosen, const Answer& answer) {
  CaseRecord record;
  record.key = key_of(answer, row);
  record.schedule = row.schedule->name;
  record.backend = "none";
  if (row.refusal) {
    record.status = CaseStatus::unsupported;
    record.reason = row.refusal->text();
    if (row.refusal->kind == Refusal::Kind::too_large) record.prediction.set("fits", std::string("no"));
    return record;
  }
  record.degree_forward = row.degree_forward;
  record.degree_backward = row.degrees_backward.second;
  record.prediction = {{"forward_s", row.forward_s},
                       {"backward_s", row.backward_s},
                       {"total_s", row.total_s()},
                       {"gar_in_moe_bytes", row.gar_in_moe_bytes},
                       {"memory_bytes", row.memory_bytes}};
  if (row.gar_after_bytes > 0) record.prediction.set("gar_after_bytes", row.gar_after_bytes);
  if (row.expert_sums_s > 0) record.prediction.set("expert_sums_s", row.expert_sums_s);
  if (row.head_s > 0) record.prediction.set("head_s", row.head_s);
  set_rates(rates_of(chosen, *answer.profile, row.total_s()),
            [&](const char* key, double value) { record.prediction.set(key, value); });
  if (const std::string weak = weak_rows(row.notes); !weak.empty()) record.prediction.set("weak_rows", weak);
  record.bound_s = row.bound_s;
  return record;
}

// Returns a row with the answer's shape and the reason why the framework runs nothing.
RankedShape refused_shape(const Answer& answer, const FrameworkPlans& plans) {
  RankedShape shape{answer.chosen->model, {}};
  shape.best.schedule = plans.framework->schedules().front();
  shape.best.refusal = plans.refusal;
  return shape;
}

// The flags of a command line, each at most once.
class FlagList {
 public:
  explicit FlagList(std::vector<GivenFlag> flags) : flags_(std::move(flags)) {}

  void erase(std::string_view name) {
    std::erase_if(flags_, [&](const GivenFlag& flag) { return flag.name == name; });
  }
  void set(const std::string& name, std::string value) {
    const auto known = std::ranges::find(flags_, name, &GivenFlag::name);
    (known == flags_.end() ? flags_.emplace_back(GivenFlag{name, {}}) : *known).value = std::move(value);
  }
  std::string text() const {
    std::string text;
    for (const GivenFlag& flag : flags_)
      text += fmt::format(" {}{}{}", flag.name, flag.value.empty() ? "" : " ",
                          flag.value.empty() ? "" : shell_word(flag.value));
    return text;
  }

 private:
  std::vector<GivenFlag> flags_;
};

void set_states(const ParallelShape& parallel, FlagList& flags) {
  if (parallel.zero > 0) flags.set("--zero", std::to_string(parallel.zero));
  if (parallel.recompute != Recompute::none) flags.set("--recompute", std::string(name_of(parallel.recompute)));
  if (parallel.offload != Offload::none) flags.set("--offload", std::string(name_of(parallel.offload)));
}

// Sets the flags of a searched shape.
void set_shape(const ModelShape& model, FlagList& flags) {
  const ParallelShape& p = model.shape.parallel;
  const auto number = [&](const std::string& name, int64_t value) { flags.set(name, std::to_string(value)); };
  for (const char* shared : {"--cp", "--cp-exchange"}) flags.erase(shared);
  number("--batch", model.shape.layer.batch);
  number("--dp", p.dp);
  if (p.cp > 1) number("--cp", p.cp);
  if (p.ring_blocks() > 0) flags.set("--cp-exchange", std::string(name_of(p.cp_exchange)));
  number("--mp", p.mp);
  number("--ep", p.ep);
  number("--esp", p.esp);
  if (p.ep > 1 && p.esp > 1) flags.set("--placement", std::string(placement_name(p)));
  if (p.pp > 1) number("--pp", p.pp);
  const StageSplit split = model.split();
  if (split.first_layers > 0) number("--first-stage-layers", split.first_layers);
  if (split.last_layers > 0) number("--last-stage-layers", split.last_layers);
  for (const char* several : {"--micro-batches", "--pipeline", "--virtual-stages"}) flags.erase(several);
  if (model.micro_batches > 1) {
    number("--micro-batches", model.whole_micro_batches());
    flags.set("--pipeline", std::string(name_of(model.order)));
  }
  if (const int chunks = model.split().virtual_stages; chunks > 1) number("--virtual-stages", chunks);
  set_states(p, flags);
}

}  // namespace

void plan_answer(const TuneOptions& options, Answer& answer) {
  const RankingRequest request = request_of(options, answer);
  answer.ranking = rank(request, schedules_of(options, *answer.chosen));
  answer.framework = framework_of(options);
  answer.published = commands::published_errors(*answer.profile, answer.chosen->name);
  answer.top = options.run_all && options.top == 0 ? static_cast<int>(answer.ranking.size()) : options.top;
  if (answer.own != nullptr && same_shape(answer.own->model, answer.chosen->model)) {
    commands::ChosenModel own = *answer.chosen;
    own.model.shape.parallel.trainer = answer.own->model.shape.parallel.trainer;
    answer.current = ranked({own, request.profile, answer.own->degrees, request.pricing}, *answer.own->schedule);
  }
  answer.plans_by_framework = plans_of(answer, request, options);
  recommended(answer);
}

void require_any_plan(const TuneOptions& options, Answer answer) {
  const RankingRequest request = request_of(options, answer);
  for (const Schedule* schedule : schedules_of(options, *answer.chosen)) {
    answer.ranking.push_back(ranked(request, *schedule));
    if (answer.ranking.back().is_usable()) return;
  }
  recommended(answer);
}

std::vector<Neighbour> neighbours_of(const TuneOptions& options, const Answer& answer) {
  RankingRequest request = request_of(options, answer);
  request.checked = false;  // only the times of these plans are used
  return neighbours(request, recommended(answer));
}

void append_ranking(RecordWriter& writer, const Answer& answer, const DegreeChoice& degrees) {
  const auto group_of = [&](const commands::ChosenModel& chosen) {
    CaseGroup group{commands::parameters_of(chosen.model, answer.cluster, answer.name, degrees), {}};
    commands::record_embedding_and_head(group.parameters, chosen);
    return group;
  };
  CaseGroup group = group_of(*answer.chosen);
  for (const RankedSchedule& row : answer.ranking)
    if (writer.find(key_of(answer, row)) == nullptr) group.cases.push_back(record_of(row, *answer.chosen, answer));
  if (!group.cases.empty()) writer.append(group);
  for (const FrameworkPlans& plans : answer.plans_by_framework) {
    if (!plans.rows.empty() && is_ranked(answer, plans.rows.front())) continue;
    const RankedShape best = plans.rows.empty() ? refused_shape(answer, plans) : plans.rows.front();
    commands::ChosenModel chosen = *answer.chosen;
    chosen.model = best.model;
    CaseRecord record = record_of(best.best, chosen, answer);
    record.key = fmt::format("framework/{}/{}", answer.name, plans.framework->key);
    if (writer.find(record.key) != nullptr) continue;
    CaseGroup own = group_of(chosen);
    own.parameters.set("framework", std::string(plans.framework->key));
    own.cases.push_back(std::move(record));
    writer.append(own);
  }
}

void append_answer(RecordWriter& writer, const Answer& answer) {
  CaseRecord record = answer_record(answer.name, answer.cluster, parts_of(answer));
  if (writer.find(record.key) != nullptr) return;
  const RankedSchedule& use = recommended(answer);
  record.parameters.set("layer", answer.name);
  record.schedule = use.schedule->name;
  record.degree_forward = use.degree_forward;
  record.degree_backward = use.degrees_backward.second;
  record.emulated = answer.emulated;
  writer.append(record);
}

void write_ranking_trace(const TuneOptions& options, const Answer& answer) {
  const RankingRequest request = request_of(options, answer);
  std::vector<PlannedTimeline> planned;
  for (size_t i = 0; i < answer.ranking.size(); ++i) {
    const RankedSchedule& row = answer.ranking[i];
    const bool drawn = i < kDrawn || commands::is_baseline(row.schedule->name);
    if (drawn && row.is_usable()) ranked(request, *row.schedule, &planned.emplace_back());
  }
  std::vector<TraceGroup> groups;
  for (const PlannedTimeline& p : planned) groups.push_back(trace_group(p.plan, p.timeline, answer.cluster));
  commands::write_trace(groups, options.trace);
}

std::string command_of(const std::string& verb, const TuneOptions& options, const Answer& answer) {
  const auto given = options.given_for.find(verb);
  FlagList flags(given == options.given_for.end() ? std::vector<GivenFlag>{} : given->second);
  const ModelShape& model = answer.chosen->model;
  if (!answer.defaults.empty()) set_states(model.shape.parallel, flags);
  const Trainer trainer = model.shape.parallel.trainer;
  if (verb == "simulate" && commands::trainer_of(options.model.framework) != trainer) {
    const commands::Framework& of_file = *options.current->file->framework;
    if (commands::refusals_of(of_file, model).empty()) {
      flags.set("--framework", std::string(of_file.key));
      flags.set("--zero", std::to_string(model.shape.parallel.zero));
    }
  }
  if (answer.framework != nullptr && model.micro_batches > 1)
    flags.set("--pipeline", std::string(name_of(model.order)));
  if (answer.shapes != nullptr || (options.current && options.current->names_shape())) set_shape(model, flags);
  if (options.any_shape) flags.set("--nearest", "");  // the search prices groups by the nearest, too
  flags.erase("--schedule");                          // so that --schedule is the last flag
  flags.set("--schedule", std::string(recommended(answer).schedule->name));
  return verb + flags.text();
}

int run_planned_answer(const TuneOptions& given) {
  const Profile profile = commands::chosen_profile(given.selection);
  const Subject subject = subject_of(given, profile);
  const TuneOptions& options = subject.options;
  Answer answer{
      .cluster = profile.name,
      .place = fmt::format("{}: {} x {} ranks", profile.name, counted(profile.nodes, "node"), profile.ranks_per_node),
      .chosen = &subject.chosen,
      .name = subject.name,
      .defaults = subject.defaults,
      .shapes = subject.shapes ? &*subject.shapes : nullptr,
      .profile = &profile,
      .own = subject.own ? &*subject.own : nullptr,
      .no_trials_reason = "nothing was run (--no-verify)",
      .records_path = commands::records_path(options.out, "plan", profile.name),
      .trace_path = options.trace.file};
  plan_answer(options, answer);
  answer.neighbours = neighbours_of(options, answer);
  if (answer.own != nullptr) answer.walk = layout_walk_of(options, answer);
  std::vector<std::string> files = subject.files;
  files.push_back(profile.file);
  answer.next = program_command() + " " + command_of("simulate", options, answer) + " --trace lanes.json";
  const auto write_records = [&] {
    RecordWriter writer(answer.records_path, {options.invocation, files, {}});
    append_ranking(writer, answer, options.selection.degrees);
    append_answer(writer, answer);
    writer.end();
  };
  print_with_records(write_records, [&] {
    if (!options.trace.file.empty()) write_ranking_trace(options, answer);
    fmt::print("{}", options.json ? document_text(json_of(answer)) + '\n' : text_of(answer));
  });
  return options.strict && is_doubtful(answer) ? kDoubtful : kOk;
}

}  // namespace moe::tuner
