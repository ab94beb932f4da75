#include "tuner/answer/current.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/shape/layer_fields.h"
#include "tuner/answer/answer_text.h"
#include "tuner/answer/framework_plans.h"
#include "tuner/answer/subject.h"

namespace moe::tuner {
namespace {

constexpr size_t kMaxSteps = 4, kMaxOutliers = 3;

/// The input of a plan, for the answer's layers and samples.
struct Layout {
  ModelShape model;
  const Schedule* schedule;
  DegreeChoice degrees;
};

using Flags = std::vector<std::pair<std::string_view, std::string>>;  // flags of tune and their values

Flags flags_of(const Layout& layout) {
  const ModelShape& model = layout.model;
  const ParallelShape& p = model.shape.parallel;
  const bool one = model.micro_batches == 1;
  Flags flags{{"--schedule", std::string(layout.schedule->name)}};
  const auto number = [&](std::string_view name, int64_t value) { flags.emplace_back(name, std::to_string(value)); };
  number("--degree-forward", layout.degrees.forward);
  number("--degree-backward", layout.degrees.backward);
  number("--dp", p.dp);
  number("--cp", p.cp);
  flags.emplace_back("--cp-exchange", p.cp > 1 ? name_of(p.cp_exchange) : std::string_view());
  number("--mp", p.mp);
  number("--ep", p.ep);
  number("--esp", p.esp);
  flags.emplace_back("--placement", p.ep > 1 && p.esp > 1 ? placement_name(p) : std::string_view());
  number("--pp", p.pp);
  number("--first-stage-layers", model.shape.layer.first_stage_layers);
  number("--last-stage-layers", model.shape.layer.last_stage_layers);
  number("--batch", model.shape.layer.batch);
  number("--micro-batches", model.whole_micro_batches());
  flags.emplace_back("--pipeline", one ? std::string_view() : name_of(model.order));
  number("--virtual-stages", model.split().virtual_stages);
  number("--zero", p.zero);
  flags.emplace_back("--recompute", name_of(p.recompute));
  flags.emplace_back("--offload", name_of(p.offload));
  return flags;
}

// Returns the flags that differ, with the values in `to`; flags that `to` does not need are left out.
Flags changed(const Layout& from, const Layout& to) {
  const Flags before = flags_of(from), after = flags_of(to);
  Flags flags;
  for (size_t i = 0; i < after.size(); ++i)
    if (after[i] != before[i] && !after[i].second.empty()) flags.push_back(after[i]);
  return flags;
}

bool equal_layouts(const Layout& a, const Layout& b) { return flags_of(a) == flags_of(b); }

/// A change that can be applied to a layout on its own. Dependent groups and the number of micro-batches are set
/// afterwards.
using Change = std::function<void(Layout& layout, const Layout& to)>;

// Returns all changes: first those of one or two flags, then those of pairs of groups, for layers on which changing one
// group alone is invalid.
std::vector<Change> changes() {
  const auto group = [](int ParallelShape::*size) {
    return [size](Layout& l, const Layout& to) { l.model.shape.parallel.*size = to.model.shape.parallel.*size; };
  };
  const auto ends = [](Layout& l, const Layout& to) {
    LayerShape& layer = l.model.shape.layer;
    layer.first_stage_layers = to.model.shape.layer.first_stage_layers;
    layer.last_stage_layers = to.model.shape.layer.last_stage_layers;
  };
  const auto both = [](auto first, auto second) {
    return [=](Layout& l, const Layout& to) {
      first(l, to);
      second(l, to);
    };
  };
  const auto pair = [=](int ParallelShape::*a, int ParallelShape::*b) { return both(group(a), group(b)); };
  using P = ParallelShape;
  const auto stages = both(group(&P::pp), ends);
  const auto exchange = [](Layout& l, const Layout& to) {
    l.model.shape.parallel.cp_exchange = to.model.shape.parallel.cp_exchange;
  };
  return {[](Layout& l, const Layout& to) { l.schedule = to.schedule, l.degrees = to.degrees; },
          [](Layout& l, const Layout& to) { l.model.shape.parallel.recompute = to.model.shape.parallel.recompute; },
          group(&P::zero),
          [](Layout& l, const Layout& to) { l.model.shape.layer.batch = to.model.shape.layer.batch; },
          [](Layout& l, const Layout& to) {
            l.model.order = to.model.order;
            l.model.virtual_stages = to.model.virtual_stages;
          },
          [](Layout& l, const Layout& to) { l.model.shape.parallel.ep_inside = to.model.shape.parallel.ep_inside; },
          group(&P::ep),
          group(&P::esp),
          group(&P::mp),
          group(&P::pp),
          ends,
          stages,
          group(&P::cp),
          exchange,
          both(group(&P::cp), exchange),
          pair(&P::ep, &P::esp),
          both(group(&P::mp), stages),
          pair(&P::mp, &P::ep),
          pair(&P::mp, &P::esp),
          pair(&P::cp, &P::mp)};
}

// Returns the best plan of the framework of the user's file; null if it runs nothing, if there is no file, or if the
// answer is for one framework.
const RankedShape* best_of_file(const Answer& answer) {
  if (answer.framework != nullptr || !answer.own->file) return nullptr;
  const auto plans =
      std::ranges::find(answer.plans_by_framework, answer.own->file->framework, &FrameworkPlans::framework);
  return plans == answer.plans_by_framework.end() ? nullptr : best_of(answer, *plans);
}

/// Finds the steps of a Walk, with times by the answer's prices. The last layout is the recommended plan or, if the
/// user's layout comes from a file, the best plan of the file's framework.
class RowRoute {
 public:
  RowRoute(const TuneOptions& options, const Answer& answer)
      : answer_(answer), pricing_(pricing_of(options)), unlimited_(*answer.profile) {
    unlimited_.memory_bytes.reset();
    samples_ = samples_of(answer.chosen->model);
    from_ = {answer.own->model, answer.own->schedule, answer.own->degrees};
    const RankedShape* of_file = best_of_file(answer);
    framework_ = of_file != nullptr ? answer.own->file->framework : answer.framework;
    target_.plan = of_file != nullptr ? *of_file : RankedShape{answer.chosen->model, recommended(answer)};
    to_ = {target_.plan.model, target_.plan.best.schedule, options.selection.degrees};
  }

  LayoutWalk walk() {
    LayoutWalk walk{.own = own()};
    for (const auto& [name, value] : flags_of(from_))
      if (!value.empty()) walk.flags.push_back(fmt::format("{} {}", name, value));
    const double best_s = target_.plan.total_s();
    const bool as_fast = !walk.own.memory_refusal && walk.own.plan.best.is_usable() &&
                         walk.own.plan.total_s() <= best_s * (1 + kEquallyFast);
    if (walk.own.plan.best.refusal || as_fast || equal_layouts(from_, to_)) return walk;
    TimedLayout now = walk.own;
    for (Layout at = from_; !equal_layouts(at, to_);) {
      std::optional<std::pair<Layout, TimedLayout>> next;
      if (walk.steps.size() + 1 < kMaxSteps) next = best_change(at, now, walk.in_time);
      if (!next) next = {to_, target_};
      if (!is_better(next->second, now)) break;
      walk.steps.push_back(step(at, next->first, next->second));
      std::tie(at, now) = *next;
    }
    return walk;
  }

 private:
  // Returns the user's layout; if it has the answer's shape and fits, its plan exists already.
  TimedLayout own() const {
    if (answer_.current && answer_.current->is_usable()) return {{from_.model, *answer_.current}};
    return timed(from_);
  }

  // Returns the layout after the single change that saves most time; none if no single change saves time.
  std::optional<std::pair<Layout, TimedLayout>> best_change(const Layout& at, const TimedLayout& now, bool& in_time) {
    std::optional<std::pair<Layout, TimedLayout>> best;
    std::vector<Layout> seen;
    for (const Change& change : changes()) {
      const std::optional<Layout> changed = with(at, change);
      if (!changed || std::ranges::any_of(seen, [&](const Layout& other) { return equal_layouts(*changed, other); }))
        continue;
      seen.push_back(*changed);
      if (answer_.shapes != nullptr && std::chrono::steady_clock::now() > answer_.shapes->deadline) {
        in_time = false;
        return {};
      }
      const TimedLayout then = equal_layouts(*changed, to_) ? target_ : timed(*changed);
      if (then.plan.best.refusal || !is_better(then, now)) continue;
      if (!best || is_better(then, best->second)) best = {*changed, then};
    }
    return best;
  }

  // A plan that fits is better than one that does not; of two that both fit, or both do not, the faster one is better.
  static bool is_better(const TimedLayout& a, const TimedLayout& b) {
    if (a.memory_refusal.has_value() != b.memory_refusal.has_value()) return !a.memory_refusal;
    return a.plan.total_s() < b.plan.total_s() && !is_equally_fast(a.plan.total_s(), b.plan.total_s());
  }

  // Returns the layout after the change, if it is valid; DP and the number of micro-batches follow from it.
  std::optional<Layout> with(const Layout& at, const Change& change) const {
    Layout layout = at;
    change(layout, to_);
    ModelShape& model = layout.model;
    ParallelShape& p = model.shape.parallel;
    p.trainer = to_.model.shape.parallel.trainer;
    const int split = p.cp * p.mp * p.pp;
    if (p.ranks() % split != 0 || p.pp > model.layers) return {};
    p.dp = p.ranks() / split;
    if (samples_ % p.dp != 0) return {};
    int64_t& batch = model.shape.layer.batch;
    batch = std::gcd(batch, samples_ / p.dp);
    model.micro_batches = static_cast<int>(samples_ / p.dp / batch) * model.split().parts;
    p.edp = 0;
    std::optional<ModelShape> found = divided(std::move(model), *answer_.chosen);
    if (!found) return {};
    model = *std::move(found);
    if (framework_ != nullptr && !commands::refusals_of(*framework_, model).empty()) return {};
    if (equal_layouts(layout, at)) return {};
    return layout;
  }

  TimedLayout timed(const Layout& layout) const {
    TimedLayout out{.plan = {layout.model, planned(layout, *answer_.profile)}};
    if (out.plan.best.is_usable() || out.plan.best.refusal->kind != Refusal::Kind::too_large) return out;
    out.memory_refusal = out.plan.best.refusal;
    out.plan.best = planned(layout, unlimited_);
    return out;
  }

  RankedSchedule planned(const Layout& layout, const Profile& profile) const {
    commands::ChosenModel chosen = *answer_.chosen;
    chosen.model = layout.model;
    RankingRequest request{chosen, profile, layout.degrees, pricing_};
    request.checked = false;
    try {
      return ranked(request, *layout.schedule);
    } catch (const BadInput& error) {  // too many tasks
      RankedSchedule row;
      row.schedule = layout.schedule;
      row.refusal = refusal_of(error);
      return row;
    }
  }

  // Returns the step from `at` to `next`.
  LayoutStep step(const Layout& at, const Layout& next, TimedLayout timed) const {
    LayoutStep step{.layout = std::move(timed)};
    const std::optional<commands::LayoutFile>& file = answer_.own->file;
    for (const auto& [name, value] : changed(at, next)) {
      step.flags.push_back(fmt::format("{} {}", name, value));
      const std::string setting = file ? commands::setting_of(*file->format, name, value) : "";
      if (!setting.empty()) step.settings.push_back(setting);
    }
    const std::vector<Change> all = changes();
    step.is_remainder = std::ranges::none_of(all, [&](const Change& change) {
      const std::optional<Layout> one = with(at, change);
      return one && equal_layouts(*one, next);
    });
    return step;
  }

  const Answer& answer_;
  const commands::Framework* framework_ = nullptr;  // framework whose settings may change; null: any
  const PricingOptions pricing_;
  Profile unlimited_;
  int64_t samples_ = 1;
  Layout from_{}, to_{};
  TimedLayout target_;
};

double seconds_of(const TimedLayout& layout) { return layout.plan.total_s(); }

// Returns the degrees of the plan: "r 2/2".
std::string degrees_text(const RankedSchedule& row) {
  return fmt::format("r {}/{}", row.degree_forward,
                     commands::degree_range(row.degrees_backward.first, row.degrees_backward.second));
}

// Returns the changes as settings of the user's framework if it has a setting for each, else as flags. Tuned degrees
// are shown by their values.
std::string changes_text(const LayoutStep& step) {
  if (step.settings.size() == step.flags.size()) return fmt::format("{}", fmt::join(step.settings, " "));
  std::vector<std::string> shown;
  bool tuned = false;
  for (const std::string& flag : step.flags) {
    const bool is_tuned = flag.starts_with("--degree") && flag.ends_with(" 0");
    tuned |= is_tuned || flag.starts_with("--schedule");
    if (!is_tuned) shown.push_back(flag);
  }
  if (tuned) shown.push_back(fmt::format("({})", degrees_text(step.layout.plan.best)));
  return fmt::format("{}", fmt::join(shown, " "));
}

/// The measured time of the user's steps.
struct StepTime {
  double step_s = 0;  // median
  size_t steps = 0;
  std::vector<std::pair<size_t, double>> outliers = {};  // index from 0, and seconds
  std::optional<double> flops_per_s = {};                // median FLOP/s of a GPU in the log; none: not in the log
};

// Outliers are steps whose distance to the nearest quartile exceeds three times the interquartile range (Tukey,
// Exploratory Data Analysis, 1977, "far out").
std::optional<StepTime> step_time_of(const Answer& answer) {
  if (!answer.own->measured) return std::nullopt;
  const auto& [seconds, is_per_sample, flops_per_s] = *answer.own->measured;
  const double samples = is_per_sample ? static_cast<double>(samples_of(answer.own->model)) : 1;
  const double low = quantile(seconds, 0.25), high = quantile(seconds, 0.75), most = 3 * (high - low);
  StepTime measured{samples * median(seconds), seconds.size()};
  if (!flops_per_s.empty()) measured.flops_per_s = median(flops_per_s);
  for (size_t i = 0; i < seconds.size(); ++i)
    if (seconds[i] < low - most || seconds[i] > high + most) measured.outliers.emplace_back(i, samples * seconds[i]);
  return measured;
}

// Returns the estimated saving in measured seconds of a faster layout. If the measured time exceeds the prediction, it
// is the predicted saving, because the unexplained time stays; else the predicted saving is scaled by measured /
// predicted.
double saved_s(const StepTime& measured, double predicted_s, double after_s) {
  return (predicted_s - after_s) * std::min(1.0, measured.step_s / predicted_s);
}

// Returns the first change of the walk if it alone is predicted faster than the user's layout; else null.
const LayoutStep* first_change(const LayoutWalk& walk) {
  if (walk.steps.empty() || seconds_of(walk.steps.front().layout) >= seconds_of(walk.own)) return nullptr;
  return &walk.steps.front();
}

/// Comparison of the FLOP/s of a GPU in a training log with Megatron's formula for the FLOPs of a step.
struct LogRates {
  double log = 0, predicted = 0;
  double ratio = 1;  // FLOPs of a step by the log over those by the formula
  bool counts_masked = false;
  bool is_same() const { return std::abs(ratio - 1) <= 0.02; }
};

// Compares the log's FLOP/s with those of Megatron's formula. Uses the formula of older releases if only that one
// agrees with the log. None if the log has no FLOP/s, or if only the model's layers are known.
std::optional<LogRates> log_rates(const Answer& answer, const StepTime& measured) {
  if (!measured.flops_per_s || answer.chosen->name.empty()) return std::nullopt;
  commands::ChosenModel own = *answer.chosen;
  own.model = answer.own->model;
  const int ranks = own.model.shape.parallel.ranks();
  const double of_log = *measured.flops_per_s * measured.step_s * ranks;
  const auto rates = [&](bool counts_masked) {
    const double flops = megatron_flops(own, counts_masked);
    return LogRates{*measured.flops_per_s, flops / ranks / seconds_of(answer.walk->own), of_log / flops, counts_masked};
  };
  const LogRates now = rates(false), older = rates(true);
  return older.is_same() && !now.is_same() ? older : now;
}

std::string rates_line(const LogRates& rates) {
  std::string text =
      fmt::format("{:.3g} TFLOP/s/GPU in the log, {:.3g} predicted by Megatron's formula{}", rates.log / 1e12,
                  rates.predicted / 1e12, rates.counts_masked ? " of releases that count masked scores" : "");
  if (!rates.is_same())
    text += fmt::format("; the log counts {:.2f}x the FLOPs of this step: another model, batch or number of GPUs",
                        rates.ratio);
  return text;
}

// Returns the measured time, its ratio to the prediction, and the meaning of that ratio for the steps of the walk.
std::vector<std::string> measured_lines(const Answer& answer) {
  const std::optional<StepTime> measured = step_time_of(answer);
  if (!measured) return {};
  const double predicted_s = seconds_of(answer.walk->own), ratio = measured->step_s / predicted_s;
  std::string text = fmt::format("measured {}, {:.3f}x predicted", three_digits(measured->step_s), ratio);
  if (measured->steps > 1) text += fmt::format(" (median of {} steps after the first)", measured->steps);
  if (!measured->outliers.empty()) {
    text += fmt::format("; {}:", counted(measured->outliers.size(), "outlier"));
    for (size_t i = 0; i < std::min(measured->outliers.size(), kMaxOutliers); ++i)
      text += fmt::format(" step {} ({})", measured->outliers[i].first + 2, three_digits(measured->outliers[i].second));
    if (measured->outliers.size() > kMaxOutliers) text += " ..";
  }
  std::vector<std::string> lines{text};
  if (const std::optional<LogRates> rates = log_rates(answer, *measured)) lines.push_back(rates_line(*rates));
  const std::vector<LayoutStep>& steps = answer.walk->steps;
  if (steps.empty() || seconds_of(steps.back().layout) >= predicted_s) return lines;
  const auto saved = [&](const LayoutStep& step) {
    const double seconds = saved_s(*measured, predicted_s, seconds_of(step.layout));
    return fmt::format("{} ({:.3f}x)", three_digits(seconds), measured->step_s / (measured->step_s - seconds));
  };
  std::vector<std::string> saves;
  if (const LayoutStep* first = first_change(*answer.walk))
    saves.push_back(fmt::format("change 1 alone saves {}", saved(*first)));
  if (steps.size() > 1) saves.push_back(fmt::format("all save {}", saved(steps.back())));
  const std::string rest = ratio > 1 ? fmt::format("the other {} stay", three_digits(measured->step_s - predicted_s))
                                     : "the prediction is too slow by one factor";
  lines.push_back(fmt::format("if {}, {}", rest, fmt::join(saves, ", ")));
  return lines;
}

// Returns the framework's defaults for values that the file leaves out: "--pp 1 --zero 0".
std::vector<std::string> defaults_of(const commands::LayoutFile& file) {
  std::vector<std::string> defaults;
  for (const auto& [flag, value] : file.defaults) defaults.push_back(fmt::format("{} {}", flag, value));
  return defaults;
}

// Returns the model's size that a flag sets; none for a capacity without a limit.
std::optional<double> planned_size(const ModelShape& model, std::string_view flag) {
  std::optional<double> size = model.layers;  // --layers is not a field of a layer
  for_each_layer_field([&](const auto& field) {
    if constexpr (!field.is_name)
      if (flag == field.flag()) size = std::optional<double>(model.shape.layer.*field.member);
  });
  return size;
}

// Returns the sizes of the file's model that differ from the planned model: "model.seq_length 8192 (--seq 4096)".
std::vector<std::string> differing_sizes(const Answer& answer) {
  std::vector<std::string> sizes;
  for (const auto& [flag, value, name] : answer.own->file->sizes) {
    const std::optional<double> planned = planned_size(answer.own->model, flag);
    if (planned && std::stod(value) == *planned) continue;
    sizes.push_back(
        fmt::format("{} {} ({} {})", name, value, flag, planned ? fmt::format("{}", *planned) : std::string("none")));
  }
  return sizes;
}

// Returns the assumptions about a file's layout.
std::vector<std::string> file_lines(const Answer& answer) {
  const std::optional<commands::LayoutFile>& file = answer.own->file;
  if (!file) return {};
  std::vector<std::string> lines;
  if (!file->defaults.empty())
    lines.push_back(fmt::format("defaults of {}: {}", file->format->name, fmt::join(defaults_of(*file), " ")));
  if (!file->unplanned.empty())
    lines.push_back(
        fmt::format("features that plans lack (times are without them): {}", fmt::join(file->unplanned, ", ")));
  if (const std::vector<std::string> sizes = differing_sizes(answer); !sizes.empty())
    lines.push_back(fmt::format("the file's model differs (planned sizes in brackets): {}", fmt::join(sizes, ", ")));
  return lines;
}

Json timed_json(const Answer& answer, const TimedLayout& layout) {
  commands::ChosenModel chosen = *answer.chosen;
  chosen.model = layout.plan.model;
  Json json = json_of(chosen, *answer.profile, layout.plan.best);
  json.update(shape_json(layout.plan.model));
  json["fits"] = !layout.memory_refusal;
  if (layout.memory_refusal) json["misfit"] = layout.memory_refusal->text();
  return json;
}

}  // namespace

LayoutWalk layout_walk_of(const TuneOptions& options, const Answer& answer) { return RowRoute(options, answer).walk(); }

std::vector<std::string> walk_lines(const Answer& answer) {
  const LayoutWalk& walk = *answer.walk;
  const TimedLayout& own = walk.own;
  const auto [groups, cut] = short_shape(own.plan.model);
  const Trainer trainer = own.plan.model.shape.parallel.trainer;
  const bool as_answer = trainer == answer.chosen->model.shape.parallel.trainer;
  const std::string layout =
      fmt::format("{}{}{}{}", groups, groups.empty() ? "" : ", ", cut, as_answer ? "" : memory_rules_text(trainer));
  if (own.plan.best.refusal)
    return {fmt::format("{}, {}: {}", own.plan.best.schedule->name, layout, own.plan.best.refusal->brief())};
  const double best_s = recommended(answer).total_s();
  std::vector<std::string> lines{fmt::format("{} at {}, {}: {}, {:.3f}x the best", own.plan.best.schedule->name,
                                             degrees_text(own.plan.best), layout, three_digits(seconds_of(own)),
                                             seconds_of(own) / best_s)};
  if (own.memory_refusal) lines.push_back(own.memory_refusal->text() + "; its time assumes that it fits");
  std::ranges::copy(file_lines(answer), std::back_inserter(lines));
  std::ranges::copy(measured_lines(answer), std::back_inserter(lines));
  if (walk.steps.empty() && !own.memory_refusal) {
    const std::string of_file =
        best_of_file(answer) != nullptr ? fmt::format(" that {} runs", answer.own->file->framework->name) : "";
    lines.push_back(fmt::format("it is the best plan{}, or as fast as the best{}", of_file,
                                answer.shapes != nullptr ? "" : ", of this layout (--shape auto searches others)"));
  }
  double before_s = seconds_of(own);
  for (size_t i = 0; i < walk.steps.size(); ++i) {
    const LayoutStep& step = walk.steps[i];
    const double after_s = seconds_of(step.layout);
    lines.push_back(fmt::format("{}. {}{}: {}, {:.3f}x{}", i + 1, step.is_remainder ? "together " : "",
                                changes_text(step), three_digits(after_s), before_s / after_s,
                                step.layout.memory_refusal ? ", does not fit yet"
                                : after_s > before_s       ? ", slower, but fits"
                                                           : ""));
    before_s = after_s;
  }
  if (!walk.in_time) lines.emplace_back("the search's time was over before all changes were compared");
  return lines;
}

Json walk_json(const Answer& answer) {
  const LayoutWalk& walk = *answer.walk;
  Json json = timed_json(answer, walk.own);
  json["flags"] = walk.flags;
  if (const std::optional<commands::LayoutFile>& file = answer.own->file)
    json["file"] = {{"path", file->path},
                    {"format", file->format->name},
                    {"defaults", defaults_of(*file)},
                    {"unplanned", file->unplanned},
                    {"other_sizes", differing_sizes(answer)}};
  json["steps"] = Json::array();
  if (walk.own.plan.best.refusal) return json;
  double before_s = seconds_of(walk.own);
  json["gain"] = before_s / (walk.steps.empty() ? recommended(answer).total_s() : seconds_of(walk.steps.back().layout));
  if (const std::optional<StepTime> measured = step_time_of(answer)) {
    json["measured_s"] = measured->step_s;
    json["ratio"] = measured->step_s / before_s;
    json["measured_steps"] = measured->steps;
    json["outliers"] = Json::array();
    for (const auto& [step, outlier_s] : measured->outliers)
      json["outliers"].push_back({{"step", step + 2}, {"seconds", outlier_s}});
    json["first"] = nullptr;
    if (const LayoutStep* first = first_change(walk))
      json["first"] = {{"flags", first->flags},
                       {"settings", first->settings},
                       {"saved_s", saved_s(*measured, before_s, seconds_of(first->layout))}};
    json["log_rates"] = nullptr;
    if (const std::optional<LogRates> rates = log_rates(answer, *measured))
      json["log_rates"] = {{"log_flops_per_s", rates->log},
                           {"predicted_flops_per_s", rates->predicted},
                           {"flops_ratio", rates->ratio},
                           {"counts_masked", rates->counts_masked}};
  }
  for (const LayoutStep& step : walk.steps) {
    const double after_s = seconds_of(step.layout);
    json["steps"].push_back({{"flags", step.flags},
                             {"settings", step.settings},
                             {"together", step.is_remainder},
                             {"gain", before_s / after_s},
                             {"layout", timed_json(answer, step.layout)}});
    before_s = after_s;
  }
  json["compared_all"] = walk.in_time;
  return json;
}

}  // namespace moe::tuner
