#include "tuner/answer/framework_plans.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <optional>

#include "commands/shared/sweep.h"
#include "moe/base/config_files.h"
#include "moe/base/table.h"
#include "moe/base/text.h"
#include "moe/base/units.h"
#include "tuner/answer/answer_text.h"
#include "tuner/answer/subject.h"

namespace moe::tuner {
namespace {

// Returns whether two models have the same shape and the same rules of memory.
bool have_same_memory(const ModelShape& a, const ModelShape& b) {
  return same_shape(a, b) && a.shape.parallel.trainer == b.shape.parallel.trainer;
}

// Returns the rows that can be used, the preferred one first.
std::vector<RankedShape> preferred_first(std::vector<RankedShape> rows) {
  std::erase_if(rows, [](const RankedShape& row) { return !row.best.is_usable(); });
  if (rows.empty()) return rows;
  std::vector<PlanCost> costs;
  for (const RankedShape& row : rows) costs.push_back(cost_of(row.best));
  const auto first = rows.begin() + static_cast<std::ptrdiff_t>(preferred(costs));
  std::rotate(rows.begin(), first, first + 1);
  return rows;
}

FrameworkPlans plans_in_groups(const commands::Framework& framework, const commands::ChosenModel& chosen,
                               const Answer& answer, const RankingRequest& request) {
  FrameworkPlans plans{.framework = &framework};
  if (const std::vector<std::string> refusals = commands::refusals_of(framework, chosen.model); !refusals.empty()) {
    plans.refusal = Refusal{.reason = refusals.front()};
    return plans;
  }
  const RankingRequest own{chosen, request.profile, request.degrees, request.pricing};
  const bool ranked_there = have_same_memory(chosen.model, answer.chosen->model);
  for (const Schedule* schedule : framework.schedules()) {
    const auto known = std::ranges::find(answer.ranking, schedule, &RankedSchedule::schedule);
    const bool is_known = ranked_there && known != answer.ranking.end();
    plans.rows.push_back({chosen.model, is_known ? *known : ranked(own, *schedule)});
  }
  plans.refusal = plans.rows.front().best.refusal;
  plans.rows = preferred_first(std::move(plans.rows));
  return plans;
}

// Returns by how much the plan is slower than the recommended one (USE): as measured if both ran, else as predicted.
std::string slower_text(const Answer& answer, const RankedSchedule& use, const RankedShape& plan) {
  const CaseRecord *own = trial_of(answer, plan.best.schedule->name), *best = trial_of(answer, use.schedule->name);
  const bool both_ran = same_shape(plan.model, answer.chosen->model) && plan.best.schedule != use.schedule && own &&
                        best && is_sound_run(*own) && is_sound_run(*best);
  const double slower = both_ran ? expected_s(answer, plan.best, *own) / expected_s(answer, use, *best) - 1
                                 : plan.total_s() / use.total_s() - 1;
  return fmt::format("{:+.1f} %{}", 100 * slower, both_ran ? ", run" : "");
}

/// The table of the frameworks that run something.
class FrameworkTable {
 public:
  // `most`: largest number of rows; frameworks with the same plan then share a row. 0: each framework has its own row.
  FrameworkTable(const Answer& answer, const RankedSchedule& use, size_t most) : answer_(answer), use_(use) {
    for (const FrameworkPlans& plans : answer.plans_by_framework)
      if (const RankedShape* best = best_of(answer, plans)) add(plans, *best, most > 0);
    for (const Row& row : rows_) {
      apart_ |= !same_shape(row.best->model, answer.chosen->model);
      gap_ |= row.plans->gap > kEquallyFast;
      rates_ |= rates(*row.best).has_value();
    }
    while (most > 0 && rows_.size() > most) leave_out_slowest();
  }

  bool empty() const { return rows_.empty(); }

  // Lists the frameworks that share another one's row, and those that are left out.
  std::vector<std::string> folded() const {
    std::vector<std::string> items;
    if (!left_out_.empty()) items.push_back(fmt::format("{}: slower (--all)", fmt::join(left_out_, ", ")));
    for (const Row& row : rows_)
      if (!row.folded.empty())
        items.push_back(fmt::format("{}: as {}", fmt::join(row.folded, ", "), row.plans->framework->key));
    return items;
  }

  // Returns the table. A shape has two lines if one line would be longer than `most` columns.
  Table table(std::optional<size_t> most) const {
    std::vector<std::string> header{"framework", "schedule", "r_f", "r_b", "predicted", "slower"};
    if (rates_) header.push_back(answer_.profile->memory_bytes ? "tokens/s/GPU" : "tokens/s/rank");
    header.emplace_back("a rank needs");
    if (gap_) header.emplace_back("search gap");
    if (apart_) header.emplace_back("groups, micro-batches");
    std::vector<std::vector<std::string>> lines;
    for (const Row& row : rows_) lines.push_back(numbers_of(row));
    size_t width = 0;  // width of all columns except the shape's
    for (size_t column = 0; column < lines.front().size(); ++column) {
      size_t widest = header[column].size();
      for (const auto& line : lines) widest = std::max(widest, line[column].size());
      width += 2 + widest;
    }
    Table table(header);
    table.hide_first({"tokens/s/rank", "tokens/s/GPU", "search gap"}, "--wide");
    for (size_t i = 0; i < rows_.size(); ++i)
      add(i, lines[i], most ? *most - width - 2 : std::numeric_limits<size_t>::max(), table);
    return table;
  }

 private:
  struct Row {
    const FrameworkPlans* plans;
    const RankedShape* best;
    std::vector<std::string_view> folded = {};  // further frameworks with the same plan
  };

  void leave_out_slowest() {
    auto slowest = rows_.begin();
    for (auto row = rows_.begin(); row != rows_.end(); ++row)
      if (row->best->total_s() >= slowest->best->total_s()) slowest = row;
    left_out_.push_back(slowest->plans->framework->key);
    left_out_.insert(left_out_.end(), slowest->folded.begin(), slowest->folded.end());
    rows_.erase(slowest);
  }

  void add(const FrameworkPlans& plans, const RankedShape& best, bool folds) {
    const auto known = std::ranges::find_if(rows_, [&](const Row& row) {
      return folds && row.best->best.schedule == best.best.schedule && same_shape(row.best->model, best.model) &&
             human_bytes(row.best->best.memory_bytes) == human_bytes(best.best.memory_bytes);
    });
    if (known == rows_.end())
      rows_.push_back({&plans, &best});
    else
      known->folded.push_back(plans.framework->key);
  }

  std::optional<StepRates> rates(const RankedShape& plan) const {
    commands::ChosenModel chosen = *answer_.chosen;
    chosen.model = plan.model;
    return rates_of(chosen, *answer_.profile, plan.total_s());
  }

  // Returns the shape's text, or a reference to the recommended plan (USE) or an earlier row with the same shape.
  std::pair<std::string, std::string> shape_of(size_t row) const {
    const ModelShape& model = rows_[row].best->model;
    if (same_shape(model, answer_.chosen->model)) return {"as USE", ""};
    for (size_t i = 0; i < row; ++i)
      if (same_shape(model, rows_[i].best->model)) return {fmt::format("as {}", rows_[i].plans->framework->key), ""};
    return short_shape(model);
  }

  std::vector<std::string> numbers_of(const Row& of) const {
    const FrameworkPlans* plans = of.plans;
    const RankedShape* best = of.best;
    const RankedSchedule& row = best->best;
    std::vector<std::string> cells{std::string(plans->framework->key),
                                   std::string(row.schedule->name),
                                   fmt::format("{}", row.degree_forward),
                                   commands::degree_range(row.degrees_backward.first, row.degrees_backward.second),
                                   three_digits(row.total_s()),
                                   slower_text(answer_, use_, *best)};
    if (rates_) cells.push_back(fmt::format("{:.0f}", rates(*best)->tokens_per_s));
    cells.push_back(human_bytes(row.memory_bytes));
    if (gap_) cells.push_back(std::isinf(plans->gap) ? "unknown" : percent(plans->gap));
    return cells;
  }

  // Adds a row. If its shape is wider than `widest`, the second part is on a line below.
  void add(size_t i, std::vector<std::string> cells, size_t widest, Table& table) const {
    if (!apart_) return table.add(cells);
    const auto [groups, cut] = shape_of(i);
    const std::string line = groups.empty() || cut.empty() ? groups + cut : fmt::format("{}, {}", groups, cut);
    const bool below = line.size() > widest;
    cells.push_back(below ? groups : line);
    table.add(cells);
    if (!below) return;
    cells.assign(cells.size(), "");
    cells.back() = "  " + cut;
    table.add(cells);
  }

  const Answer& answer_;
  const RankedSchedule& use_;
  std::vector<Row> rows_;
  std::vector<std::string_view> left_out_;
  bool apart_ = false, gap_ = false, rates_ = false;
};

}  // namespace

bool same_shape(const ModelShape& a, const ModelShape& b) {
  const bool one_order = a.micro_batches == 1 || a.order == b.order;
  LayerCase shape = a.shape;
  shape.parallel.trainer = b.shape.parallel.trainer;
  return shape == b.shape && a.layers == b.layers && a.micro_batches == b.micro_batches && one_order &&
         a.split().virtual_stages == b.split().virtual_stages;
}

std::vector<FrameworkPlans> plans_of(const Answer& answer, const RankingRequest& request, const TuneOptions& options) {
  if (answer.framework == nullptr && answer.shapes != nullptr) return answer.shapes->plans_by_framework;
  std::vector<FrameworkPlans> all;
  if (answer.framework != nullptr && !answer.framework->runs_all_schedules()) {
    FrameworkPlans& plans = all.emplace_back(FrameworkPlans{.framework = answer.framework});
    for (const RankedSchedule& row : answer.ranking)
      if (row.is_usable()) plans.rows.push_back({answer.chosen->model, row});
    if (answer.shapes != nullptr) plans.gap = answer.shapes->gap();
  }
  if (answer.framework != nullptr) return all;
  commands::ChosenModel chosen = *answer.chosen;
  const bool is_own = options.current && options.current->model.pipeline;  // the user's layout gives the order
  if (is_own || !options.model.pipeline) chosen.model.order = PipelineOrder::one_f_one_b;
  for (const commands::Framework& framework : commands::frameworks()) {
    if (framework.runs_all_schedules()) continue;
    commands::ChosenModel own = chosen;
    own.model.shape.parallel.trainer = framework.trainer.value_or(chosen.model.shape.parallel.trainer);
    set_training_states(options, *answer.profile, own);
    all.push_back(plans_in_groups(framework, own, answer, request));
  }
  return all;
}

const RankedShape* best_of(const Answer& answer, const FrameworkPlans& plans) {
  const RankedShape* best = plans.rows.empty() ? nullptr : &plans.rows.front();
  for (const RankedShape& row : plans.rows)
    if (same_shape(row.model, answer.chosen->model) && clearly_faster(answer, row.best, best->best)) best = &row;
  return best;
}

bool is_ranked(const Answer& answer, const RankedShape& plan) {
  return have_same_memory(plan.model, answer.chosen->model) && row_of(answer, plan.best.schedule->name) != nullptr;
}

namespace {

// The command that exports settings, and remarks on the frameworks' plans.
struct SettingsWords {
  std::string how;
  std::vector<std::string> notes;
};

// The frameworks without a plan, by the reason.
class RefusedFrameworks {
 public:
  void add(const std::string& reason, std::string_view framework) {
    const auto known = std::ranges::find(by_reason_, reason, [](const auto& refused) { return refused.first; });
    if (known != by_reason_.end())
      known->second.push_back(framework);
    else
      by_reason_.push_back({reason, {framework}});
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const auto& [reason, keys] : by_reason_) lines.push_back(fmt::format("{}: {}", fmt::join(keys, ", "), reason));
    return lines;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string_view>>> by_reason_;
};

SettingsWords settings_words(const Answer& answer, const RankedSchedule& use, bool tight, bool any_runs) {
  std::vector<std::string> items;
  const auto runs = [&](const FrameworkPlans& plans) { return plans.framework->lists(use.schedule->name); };
  if (use.schedule->orders_iterations() && std::ranges::none_of(answer.plans_by_framework, runs))
    items.push_back(fmt::format("only moetune runs {}", use.schedule->name));
  RefusedFrameworks refused;
  std::vector<std::string_view> formats, none, almost, faster;
  for (const FrameworkPlans& plans : answer.plans_by_framework) {
    const commands::Framework& framework = *plans.framework;
    const RankedShape* best = best_of(answer, plans);
    if (best == nullptr) {
      if (tight && plans.refusal->kind != Refusal::Kind::too_large)
        none.push_back(framework.key);
      else
        refused.add(plans.refusal->brief(), framework.key);
      continue;
    }
    if (framework.is_exported) formats.push_back(framework.key);
    if (row_of(answer, best->best.schedule->name) == nullptr && best->total_s() < use.total_s() * (1 - kEquallyFast))
      faster.push_back(framework.key);
    if (std::ranges::find(framework.close, best->best.schedule->name) == framework.close.end()) continue;
    if (tight)
      almost.push_back(framework.key);
    else
      items.push_back(fmt::format("{}: except for {}", framework.key, framework.but));
  }
  if (!faster.empty())
    items.push_back(fmt::format("{}: faster than USE, with a schedule that is not ranked", fmt::join(faster, ", ")));
  if (!almost.empty()) items.push_back(fmt::format("{}: not exactly (--all)", fmt::join(almost, ", ")));
  for (const std::string_view key : none) refused.add("nothing (reasons: --all)", key);
  for (std::string& line : refused.lines()) items.push_back(std::move(line));
  const bool two_layers = std::ranges::any_of(answer.trials, &Trial::current);  // in the records
  SettingsWords words{"", std::move(items)};
  if (!formats.empty())
    words.how = fmt::format("all settings: {} export {} {}{} (formats: {})", program_command(), formats.front(),
                            answer.records_path, two_layers ? fmt::format(" --only {}", shell_word(answer.name)) : "",
                            fmt::join(formats, ", "));
  else if (any_runs)
    words.how = "none of the frameworks with exported settings runs it";
  return words;
}

constexpr std::string_view kRunsAll = "moetune runs every schedule: layerbench runs layers, modelbench runs models";

}  // namespace

std::string frameworks_text(const Answer& answer, const RankedSchedule& use, size_t plans) {
  if (answer.plans_by_framework.empty()) return fmt::format("SET IT {}\n", kRunsAll);
  const bool tight = plans > 0;
  const FrameworkTable table(answer, use, plans);
  auto [how, notes] = settings_words(answer, use, tight, !table.empty());
  const std::vector<std::string> folded = table.folded();
  notes.insert(notes.begin(), folded.begin(), folded.end());
  const std::string begin = fmt::format("SET IT {}{}", how, how.empty() ? "" : "\n");
  if (table.empty()) return notes.empty() ? begin : packed_lines(begin, notes);
  const std::optional<int> widest = tight ? limited_output_columns(kMaxColumns) : output_columns();
  const std::string text = begin + table.table(kMaxColumns).text(widest);
  return notes.empty() ? text : text + packed_lines(kIndent, notes);
}

AnswerPart frameworks_part(const Answer& answer, const RankedSchedule& use) {
  if (answer.plans_by_framework.empty()) return {"SET IT", {std::string(kRunsAll)}, {}};
  const FrameworkTable table(answer, use, 0);
  auto [how, items] = settings_words(answer, use, false, !table.empty());
  if (!how.empty()) items.insert(items.begin(), std::move(how));
  AnswerPart part{"SET IT", std::move(items), {}};
  if (!table.empty()) part.table = table.table(std::nullopt).rows();
  return part;
}

}  // namespace moe::tuner
