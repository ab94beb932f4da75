#include "moe/prices/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/prices/curve_fit.h"
#include "moe/prices/detail/nnls.h"
#include "moe/prices/modules.h"
#include "moe/prices/profile.h"
#include "moe/record/pass_times.h"

namespace moe {
namespace {

constexpr double kFlat = 2;
constexpr size_t kNamedInAWarning = 3;  // limit for the set-aside samples that a warning names

double r_squared(const std::vector<FitSample>& samples, const Line& line) {
  double mean = 0, residual = 0, total = 0, most = 0;
  for (const auto& sample : samples) most = std::max(most, sample.seconds);
  for (const auto& sample : samples) mean += sample.seconds / most / static_cast<double>(samples.size());
  for (const auto& sample : samples) {
    residual += std::pow((sample.seconds - line.at(sample)) / most, 2);
    total += std::pow(sample.seconds / most - mean, 2);
  }
  return total > 0 ? std::max(1 - residual / total, std::numeric_limits<double>::lowest()) : 0;
}

// Returns, for each sample, the relative error of the line that is fitted to the kept samples of all other sizes; empty
// if too few sizes are left to fit.
std::vector<double> held_out_errors(const std::vector<FitSample>& samples, const std::vector<FitSample>& kept) {
  std::map<double, Line> without;
  for (const FitSample& sample : samples) {
    const auto [line, fresh] = without.try_emplace(sample.size_per_start());
    if (!fresh) continue;
    std::vector<FitSample> others;
    for (const FitSample& other : kept)
      if (other.size_per_start() != line->first) others.push_back(other);
    if (distinct_sizes(others) < 2) return {};
    line->second = least_squares(others);
  }
  std::vector<double> errors;
  for (const FitSample& sample : samples) {
    const double error = std::abs(without.at(sample.size_per_start()).at(sample) / sample.seconds - 1);
    errors.push_back(std::min(error, std::numeric_limits<double>::max()));
  }
  return errors;
}

// Returns whether the line is steep enough to judge by r^2: for a nearly flat line, r^2 only measures noise.
bool rises(const LinearFit& fit) {
  return fit.alpha_s + fit.range[1] * fit.beta > kFlat * (fit.alpha_s + fit.range[0] * fit.beta);
}

// Returns a text with the limits that `fit` exceeds, if any. `worst`: the largest held-out error of kept samples.
std::optional<std::string> weakness(const LinearFit& fit, double worst) {
  std::string why;
  const auto add = [&](const std::string& text) { why += (why.empty() ? "" : ", ") + text; };
  const double aside = static_cast<double>(fit.set_aside.size()) / static_cast<double>(fit.samples);
  if (!fit.held_out_error) add("too few sizes to judge it");
  if (aside > kMaxSetAside) add(fmt::format("{} of {} samples set aside", fit.set_aside.size(), fit.samples));
  if (fit.held_out_error > kMaxHeldOutError) add(fmt::format("held-out error {:.0f} %", 100 * *fit.held_out_error));
  if (worst > kMaxHeldOutWorst) add(fmt::format("held-out error {:.0f} % at worst", 100 * worst));
  const bool by_line = fit.points.empty();
  if (by_line && !(fit.r_squared_kept >= kMinRSquaredOfKept) && rises(fit))
    add(fmt::format("r^2 {:.2f}", fit.r_squared_kept));
  return why.empty() ? std::nullopt : std::optional(why);
}

// Sets the held-out errors and the verdict of a fit. `errors`: of all samples; `off`: whether samples are set aside.
void judge(LinearFit& fit, std::vector<double> errors, const std::vector<bool>& off) {
  double worst = 0;
  for (size_t i = 0; i < errors.size(); ++i)
    if (!off[i]) worst = std::max(worst, errors[i]);
  if (!errors.empty()) {
    fit.held_out_worst = *std::ranges::max_element(errors);
    fit.held_out_error = median(errors);
  }
  fit.weak = weakness(fit, worst);
}

}  // namespace

LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what) {
  for (const auto& sample : samples) {
    const bool usable = std::isfinite(sample.size) && sample.size > 0 && std::isfinite(sample.seconds) &&
                        sample.seconds > 0 && std::isfinite(sample.starts) && sample.starts > 0;
    require<BadInput>(usable, "{}: found size {} in {} s, expected both > 0", what, sample.size, sample.seconds);
  }
  const size_t sizes = distinct_sizes(samples);
  if (sizes < 2)
    throw FitError(what, fmt::format("found {}, expected at least 2 to fit a line", counted(sizes, "size")));
  std::ranges::stable_sort(samples, {}, &FitSample::size_per_start);
  const std::vector<bool> off = outliers(samples);
  std::vector<FitSample> kept;
  for (size_t i = 0; i < samples.size(); ++i)
    if (!off[i]) kept.push_back(samples[i]);
  const Line line = least_squares(kept);
  if (!(line.beta > 0 && std::isfinite(line.beta) && std::isfinite(line.alpha)))
    throw FitError(what, "found times that do not grow with sizes, expected growth");
  LinearFit fit;
  fit.alpha_s = line.alpha;
  fit.beta = line.beta;
  fit.alpha_clamped = line.clamped;
  fit.r_squared = r_squared(samples, line);
  fit.r_squared_kept = r_squared(kept, line);
  fit.range = {kept.front().size_per_start(), kept.back().size_per_start()};
  fit.samples = samples.size();
  for (size_t i = 0; i < samples.size(); ++i)
    if (off[i]) fit.set_aside.push_back({samples[i].name, samples[i].size, samples[i].seconds, line.at(samples[i])});
  judge(fit, held_out_errors(samples, kept), off);
  return fit;
}

LinearFit fit_without_line(const std::vector<FitSample>& samples, std::string_view why) {
  // Growth up to the largest size in medians; not 0, because a row's beta must be above 0.
  constexpr double kNearlyFlat = 1e-3;
  std::vector<double> sizes, seconds;
  for (const FitSample& sample : samples) sizes.push_back(sample.size), seconds.push_back(sample.seconds);
  const auto [least, most] = std::ranges::minmax(sizes);
  LinearFit fit;
  fit.samples = samples.size();
  fit.alpha_s = median(seconds);
  fit.beta = kNearlyFlat * fit.alpha_s / most;
  fit.range = {least < most ? least : least * (1 - 1e-9), most};  // a range must have a length
  fit.weak = why;
  return fit;
}

void fit_curve(const std::vector<FitSample>& samples, std::string_view what, LinearFit& fit) {
  if (fit.held_out_error && *fit.held_out_error <= kLineError) return;
  std::vector<FitSample> kept;
  Points points;
  for (const FitSample& sample : samples) {
    const auto same = [&](const SetAsideSample& s) { return s.size == sample.size && s.seconds == sample.seconds; };
    if (std::ranges::any_of(fit.set_aside, same)) continue;
    kept.push_back(sample);
    points.push_back({sample.size, sample.seconds});
  }
  const PiecewiseCurve pieces = fit_pieces(points, what);
  const std::optional<double> error = pieces.held_out_error();
  // Both errors are over the samples that are kept.
  const std::vector<double> of_line = held_out_errors(kept, kept);
  const std::optional<double> line_error = of_line.empty() ? std::nullopt : std::optional(median(of_line));
  if (!error || pieces.knots.size() < 3 || (line_error && *error > kClearlyBelow * *line_error)) return;
  const Line line = relative_least_squares(kept);
  if (line.beta > 0 && std::isfinite(line.beta) && std::isfinite(line.alpha)) {
    fit.alpha_s = line.alpha;
    fit.beta = line.beta;
    fit.alpha_clamped = line.clamped;
    fit.r_squared = r_squared(samples, line);
    fit.r_squared_kept = r_squared(kept, line);
    for (SetAsideSample& aside : fit.set_aside) aside.expected_s = line.at({aside.size, aside.seconds});
  }
  fit.line_error = line_error;
  fit.held_out_error = error;
  fit.held_out_worst = pieces.held_out_worst();
  fit.points = pieces.knots;
  fit.range = {fit.points.front()[0], fit.points.back()[0]};
  fit.weak = weakness(fit, fit.held_out_worst.value_or(0));
}

std::string r_squared_text(double r_squared) {
  return r_squared > -10 ? fmt::format("{:.7f}", r_squared) : fmt::format("{:.2g}", r_squared);
}

std::vector<FitWarning> fit_warnings(const FittedProfile& fitted) {
  std::vector<FitWarning> warnings;
  const auto add_weak = [&](const std::string& row, const std::optional<std::string>& why) {
    if (why)
      warnings.push_back({fmt::format("{} has a weak fit; prices that use it are labelled: {}", row, *why), true});
  };
  for (const auto& [what, fit, unusable] : fitted.rows) {
    if (unusable)
      warnings.push_back({fmt::format("{} is unusable; operations that need it have no price: {}", what, *unusable)});
    add_weak(what, fit.weak);
    if (fit.set_aside.empty()) continue;
    std::string text =
        fmt::format("{}: {} of {} samples set aside (r^2 {} of all, {} of the rest)", what, fit.set_aside.size(),
                    fit.samples, r_squared_text(fit.r_squared), r_squared_text(fit.r_squared_kept));
    for (size_t i = 0; i < fit.set_aside.size() && i < kNamedInAWarning; ++i) {
      const SetAsideSample& s = fit.set_aside[i];
      text += fmt::format("{} {} took {:.4g} s, the line predicts {:.4g} s", i == 0 ? ":" : ";", s.name, s.seconds,
                          s.expected_s);
    }
    if (fit.set_aside.size() > kNamedInAWarning)
      text += fmt::format("; the profile lists {} more", fit.set_aside.size() - kNamedInAWarning);
    warnings.push_back({std::move(text)});
  }
  for (const TaskRow& row : fitted.profile.tasks) add_weak(row_name(row), row.verdict.weak);
  return warnings;
}

namespace {

constexpr int kReweightings = 4;
constexpr double kFarMedians = 3;  // samples whose relative error exceeds this number of medians get less weight
constexpr size_t kMinToJudge = 3;

TermValues weighted_fit(const std::vector<TermSample>& samples, const std::vector<double>& weights) {
  const auto count = static_cast<Eigen::Index>(samples.size());
  Eigen::MatrixXd terms(count, kTerms);
  Eigen::VectorXd ones(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const TermSample& sample = samples[i];
    ones(i) = weights[i];
    for (size_t t = 0; t < kTerms; ++t)
      terms(i, static_cast<Eigen::Index>(t)) = ones(i) * sample.terms[t] / sample.seconds;
  }
  const Eigen::VectorXd solved = nnls(terms, ones);
  TermValues seconds_per_term{};
  std::ranges::copy(solved, seconds_per_term.begin());
  return seconds_per_term;
}

double error_of(const TermValues& seconds_per_term, const TermSample& sample) {
  return std::min(std::abs(dot(seconds_per_term, sample.terms) / sample.seconds - 1),
                  std::numeric_limits<double>::max());
}

TermValues robust_fit(const std::vector<TermSample>& samples) {
  std::vector<double> weights(samples.size(), 1);
  TermValues seconds_per_term = weighted_fit(samples, weights);
  for (int i = 0; i < kReweightings; ++i) {
    std::vector<double> errors;
    for (const TermSample& sample : samples) errors.push_back(error_of(seconds_per_term, sample));
    const double far = kFarMedians * median(errors);
    if (far == 0) break;
    for (size_t s = 0; s < samples.size(); ++s) weights[s] = errors[s] > far ? std::sqrt(far / errors[s]) : 1;
    seconds_per_term = weighted_fit(samples, weights);
  }
  return seconds_per_term;
}

void judge(const std::vector<TermSample>& samples, TaskRow& row) {
  std::vector<double> errors;
  for (size_t s = 0; samples.size() >= kMinToJudge && s < samples.size(); ++s) {
    std::vector<TermSample> others = samples;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(s));
    errors.push_back(error_of(robust_fit(others), samples[s]));
  }
  if (errors.empty()) {
    row.verdict.weak = fmt::format("{}, too few to judge it", counted(samples.size(), "sample"));
    return;
  }
  row.held_out_error = median(errors);
  row.verdict.held_out_worst = *std::ranges::max_element(errors);
  if (*row.held_out_error > kMaxHeldOutError)
    row.verdict.weak = fmt::format("held-out error {:.0f} %", 100 * *row.held_out_error);
  else if (*row.verdict.held_out_worst > kMaxHeldOutWorst)
    row.verdict.weak = fmt::format("held-out error {:.0f} % at worst", 100 * *row.verdict.held_out_worst);
}

}  // namespace

void fit_terms(const std::vector<TermSample>& samples, std::string_view what, TaskRow& row) {
  require<BadInput>(!samples.empty(), "{}: found no sample, expected at least one", what);
  row.min = row.max = samples.front().terms;
  for (const TermSample& sample : samples) {
    require<BadInput>(std::isfinite(sample.seconds) && sample.seconds > 0, "{}: found {} s, expected more than 0", what,
                      sample.seconds);
    for (size_t t = 0; t < kTerms; ++t) {
      row.min[t] = std::min(row.min[t], sample.terms[t]);
      row.max[t] = std::max(row.max[t], sample.terms[t]);
    }
  }
  row.seconds_per_term = robust_fit(samples);
  for (const double s : row.seconds_per_term)
    if (!std::isfinite(s)) throw FitError(what, fmt::format("found {} s a unit of a term, expected a number", s));
  judge(samples, row);
}

namespace {

/// The key of a profile's row. Its first field sorts rows by table.
struct RowKey {
  enum class Table { comm, compute, module, task } table = Table::comm;
  std::string op;  // or the module's name
  Network network = Network::none;
  int ranks = 0, ranks_per_node = 0;
  std::string algorithm;
  DType dtype = DType::float32;
  Phase phase = Phase::forward;
  std::optional<int64_t> seq;
  auto operator<=>(const RowKey&) const = default;
};

std::string text_or(const CaseRecord& record, std::string_view name, std::string_view otherwise) {
  return record.parameters.has(name) ? record.parameters.text(name, record.where) : std::string(otherwise);
}

/// Reads a parameter that must be `first` or `second`; returns whether it is `first`.
bool first_of(const CaseRecord& record, std::string_view name, std::string_view first, std::string_view second) {
  const std::string& found = record.parameters.text(name, record.where);
  require<BadInput>(found == first || found == second, "{}: {}: found '{}', expected {} or {}", record.where, name,
                    found, first, second);
  return found == first;
}

/// Reads a whole number within [least, most].
int64_t whole_within(const CaseRecord& record, std::string_view name, int64_t least, int64_t most) {
  const int64_t found = record.parameters.whole(name, record.where);
  require<BadInput>(found >= least && found <= most, "{}: {}: found {}, expected {} to {}", record.where, name, found,
                    least, most);
  return found;
}

RowKey collective_key(const CaseRecord& record, const Profile& profile) {
  RowKey key;
  key.op = record.parameters.text("op", record.where);
  const auto op = find_op(key.op);
  require<BadInput>(op && facts_of(*op).table == OpTable::comm,
                    "{}: op: found '{}', expected a collective, gemm or module", record.where, key.op);
  key.network = first_of(record, "network", "inter", "intra") ? Network::inter : Network::intra;
  const int64_t ranks = record.parameters.whole("ranks", record.where);
  require<BadInput>(ranks >= 2, "{}: ranks: found {}, expected at least 2", record.where, ranks);
  require<BadInput>(*op != Op::sendrecv || ranks == 2, "{}: ranks: found {} of a sendrecv, expected 2", record.where,
                    ranks);
  require<BadInput>(ranks <= max_ranks(profile, key.network),
                    "{}: ranks: found {} on the {} network of {} x {} ranks, expected at most {}", record.where, ranks,
                    name_of(key.network), profile.nodes, profile.ranks_per_node, max_ranks(profile, key.network));
  key.ranks = static_cast<int>(ranks);
  if (record.parameters.has("group_ranks_per_node")) {
    const int most = std::min(profile.ranks_per_node, key.ranks / 2);
    key.ranks_per_node = static_cast<int>(whole_within(record, "group_ranks_per_node", 1, most));
  }
  key.algorithm = text_or(record, "algorithm", CommRow{}.algorithm);
  const std::vector<std::string_view> known = algorithms();
  require<BadInput>(std::ranges::find(known, key.algorithm) != known.end(),
                    "{}: algorithm: found {}, expected one of: {}", record.where, quoted_text(key.algorithm),
                    fmt::join(known, ", "));
  return key;
}

// Reads a phase; Phase::step only for a task.
Phase phase_of(const CaseRecord& record, bool is_task) {
  const std::string& found = record.parameters.text("phase", record.where);
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::step})
    if (found == name_of(phase) && (is_task || phase != Phase::step)) return phase;
  bad_input("{}: phase: found '{}', expected {}", record.where, found,
            is_task ? "forward, backward or step" : "forward or backward");
}

RowKey key_of(const CaseRecord& record, const Profile& profile) {
  const Fields& parameters = record.parameters;
  RowKey key;
  key.op = parameters.text("op", record.where);
  const auto op = find_op(key.op);
  if (op == Op::gemm) {
    key.table = RowKey::Table::compute;
    key.dtype = dtype_from(parameters.text("dtype", record.where), record.where + ": dtype");
  } else if (op == Op::host_copy) {
    key.table = RowKey::Table::compute;
  } else if (op == Op::module || op == Op::task) {
    key.table = op == Op::module ? RowKey::Table::module : RowKey::Table::task;
    key.op = parameters.text("name", record.where);
    key.phase = phase_of(record, op == Op::task);
    require<BadInput>(is_name(key.op), "{}: name: found {}, expected letters, digits and . _ : + - @", record.where,
                      quoted_text(key.op));
    if (op == Op::task)
      key.dtype = dtype_from(parameters.text("dtype", record.where), record.where + ": dtype");
    else if (parameters.has("seq"))
      key.seq = whole_within(record, "seq", 1, INT64_MAX);
  } else {
    return collective_key(record, profile);
  }
  return key;
}

TermSample term_sample_of(const CaseRecord& record) {
  TermSample sample;
  for (size_t t = 0; t < kTerms; ++t) {
    const std::string_view term = term_names()[t];
    if (record.parameters.has(term)) sample.terms[t] = record.parameters.number(term, record.where);
    require<BadInput>(std::isfinite(sample.terms[t]) && sample.terms[t] >= 0, "{}: {}: found {}, expected at least 0",
                      record.where, term, sample.terms[t]);
  }
  sample.seconds = record.summary.number("median_s", record.where);
  require<BadInput>(std::ranges::max(sample.terms) > 0, "{}: found no term, expected one of: {}", record.where,
                    fmt::join(term_names(), ", "));
  require<BadInput>(std::isfinite(sample.seconds) && sample.seconds > 0, "{}: median_s: found {}, expected more than 0",
                    record.where, sample.seconds);
  return sample;
}

FitSample sample_of(const CaseRecord& record, const RowKey& key) {
  const Fields& parameters = record.parameters;
  FitSample sample;
  sample.name = record.where.empty() ? record.key : fmt::format("{} ({})", record.key, record.where);
  const bool bytes = key.table == RowKey::Table::comm || key.op == name_of(Op::host_copy) ||
                     (key.table == RowKey::Table::module && is_priced_by_byte(key.op));
  sample.size = parameters.number(bytes ? "bytes" : "flops", record.where);
  sample.seconds = record.summary.number("median_s", record.where);
  if (key.table == RowKey::Table::compute && parameters.has("gemms"))
    sample.starts = parameters.number("gemms", record.where);
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  const bool usable = positive(sample.size) && positive(sample.seconds) && positive(sample.starts);
  require<BadInput>(usable, "{}: found size {}, starts {} and median_s {}, expected all > 0", record.where, sample.size,
                    sample.starts, sample.seconds);
  return sample;
}

// Returns the seconds of a case's repetitions; its median if the case has no samples.
std::vector<double> times_of(const CaseRecord& record) {
  for (const Samples& samples : record.samples)
    if (samples.name == "seconds" && !samples.values.empty() &&
        std::ranges::none_of(samples.values, &std::vector<double>::empty))
      return max_over_ranks(samples.values);
  return {record.summary.number("median_s", record.where)};
}

// The seconds of repetitions by case and size. The case is empty for collectives, so cases of a size are pooled.
using Repetitions = std::map<std::pair<std::string, double>, std::vector<double>>;

std::optional<double> spread_of(const Repetitions& repetitions) {
  std::vector<double> spreads;
  for (const auto& [_, seconds] : repetitions)
    if (seconds.size() > 1) spreads.push_back((quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median(seconds));
  return spreads.empty() ? std::nullopt : std::optional(median(spreads));
}

// Marks a fit as weak if repetitions of the same size differ much, which a fit of their medians does not show.
void judge_spread(const Repetitions& repetitions, LinearFit& fit) {
  const std::optional<double> spread = spread_of(repetitions);
  if (!spread || *spread <= kMaxSpread) return;
  const std::string why = fmt::format("repetitions of a size spread by {:.0f} %", 100 * *spread);
  fit.weak = fit.weak ? *fit.weak + ", " + why : why;
}

template <class Row>
Row fitted(Row row, const LinearFit& fit) {
  row.alpha_s = fit.alpha_s;
  row.r_squared = fit.r_squared;
  row.held_out_error = fit.held_out_error;
  row.verdict.held_out_worst = fit.held_out_worst;
  row.verdict.weak = fit.weak;
  for (const SetAsideSample& sample : fit.set_aside) row.verdict.set_aside.push_back({sample.size, sample.seconds});
  return row;
}

/// Returns the key's row without a fit.
CommRow comm_of(const RowKey& key) {
  return {.op = *find_op(key.op),
          .network = key.network,
          .ranks = key.ranks,
          .ranks_per_node = key.ranks_per_node,
          .algorithm = key.algorithm};
}
ComputeRow compute_of(const RowKey& key) { return {.op = *find_op(key.op), .dtype = key.dtype}; }
ModuleRow module_of(const RowKey& key) { return {key.op, key.phase, key.seq}; }

std::string name_of(const RowKey& key) {
  if (key.table == RowKey::Table::comm) return row_name(comm_of(key));
  return key.table == RowKey::Table::compute ? row_name(compute_of(key)) : row_name(module_of(key));
}

void add_row(Profile& profile, const RowKey& key, const LinearFit& fit) {
  switch (key.table) {
    case RowKey::Table::comm:
      profile.comm.push_back(fitted(comm_of(key), fit));
      profile.comm.back().beta_s_per_byte = fit.beta;
      profile.comm.back().range_bytes = fit.range;
      profile.comm.back().points = fit.points;
      break;
    case RowKey::Table::compute:
      profile.compute.push_back(fitted(compute_of(key), fit));
      if (copies(profile.compute.back().op)) {
        profile.compute.back().beta_s_per_byte = fit.beta;
        break;
      }
      profile.compute.back().beta_s_per_flop = fit.beta;
      profile.compute.back().range_flops = fit.range;
      break;
    case RowKey::Table::module: {
      ModuleRow& row = profile.modules.emplace_back(fitted(module_of(key), fit));
      (is_priced_by_byte(key.op) ? row.beta_s_per_byte : row.beta_s_per_flop) = fit.beta;
      row.range = fit.range;
      break;
    }
    case RowKey::Table::task:  // fit_terms() fits these
      break;
  }
}

/// Smaller slowdowns between lanes are ignored, because they may be noise.
constexpr double kMinSlowdown = 1.05;

double& factor_of(Contention& contention, const CaseRecord& record) {
  const std::string &lane = record.parameters.text("lane", record.where),
                    &by = record.parameters.text("by", record.where);
  for (const ContentionPair& pair : contention_pairs())
    if (name_of(pair.slowed) == lane && name_of(pair.by) == by) return contention.*pair.factor;
  bad_input("{}: slowdown: found '{} by {}', expected two of inter, intra, compute, copy", record.where, lane, by);
}

/// Reads a case that is not a sample of a row: a slowdown between lanes, or the overhead of a task. Returns false for
/// other cases.
bool take_whole(Profile& profile, const CaseRecord& record) {
  const std::string& op = record.parameters.text("op", record.where);
  if (op == "overhead") {
    const double seconds = record.summary.number("crossing_s", record.where);
    require<BadInput>(std::isfinite(seconds) && seconds >= 0, "{}: crossing_s: found {}, expected at least 0",
                      record.where, seconds);
    profile.task_overhead_s = seconds;
  } else if (op == "slowdown") {
    const double factor = record.summary.number("factor", record.where);
    require<BadInput>(std::isfinite(factor) && factor >= 1, "{}: factor: found {}, expected at least 1", record.where,
                      factor);
    if (factor >= kMinSlowdown) factor_of(profile.contention, record) = factor;
  } else {
    return op == "overlap";
  }
  return true;
}

// Throws FitError if these prices exceed the limits of a profile.
void require_price(double alpha_s, double beta, std::string_view what) {
  if (!(alpha_s <= kSeconds.max && beta <= kSecondsPerUnit.max))
    throw FitError(what, fmt::format("found {:.3g} s and {:.3g} s a unit, expected at most {:g} and {:g}", alpha_s,
                                     beta, kSeconds.max, kSecondsPerUnit.max));
}

void add_unusable(FittedProfile& out, const std::string& what, const FitError& none) {
  out.rows.push_back({what, {}, none.why()});
  out.profile.unusable.push_back({what, none.why()});
}

// The backend of cases that another program measured.
constexpr std::string_view kNoBackend = "none";

// Sets the profile's cluster size from the cases. All cases must be of the same cluster and all emulated or all real;
// cases with a network must have the same backend.
void take_cluster(Profile& profile, const std::vector<CaseRecord>& cases) {
  const CaseRecord *first = nullptr, *sends = nullptr;
  const auto name_of_cluster = [](const CaseRecord& record) { return record.parameters.text("cluster", record.where); };
  for (const CaseRecord& record : cases) {
    if (record.status != CaseStatus::ok) continue;
    const auto nodes = static_cast<int>(whole_within(record, "nodes", 1, kMaxNodes));
    const auto ranks_per_node = static_cast<int>(whole_within(record, "ranks_per_node", 1, kMaxRanksPerNode));
    if (first == nullptr) first = &record, profile.nodes = nodes, profile.ranks_per_node = ranks_per_node;
    const std::string found = name_of_cluster(record), expected = name_of_cluster(*first);
    require<BadInput>(found == expected && nodes == profile.nodes && ranks_per_node == profile.ranks_per_node,
                      "{}: cluster: found {} ({} x {}), expected {} ({} x {}) as in the cases before", record.where,
                      found, nodes, ranks_per_node, expected, profile.nodes, profile.ranks_per_node);
    const auto emulated = [](const CaseRecord& r) { return r.emulated ? "emulated" : "not emulated"; };
    require<BadInput>(record.emulated == first->emulated, "{}: found a case {}, expected {} as in the cases before",
                      record.where, emulated(record), emulated(*first));
    if (record.backend == kNoBackend || !record.parameters.has("network")) continue;
    if (sends == nullptr) sends = &record;
    require<BadInput>(record.backend == sends->backend, "{}: backend: found {}, expected {} as in the cases before",
                      record.where, record.backend, sends->backend);
  }
}

}  // namespace

std::vector<CaseRecord> best_attempts(const std::vector<CaseRecord>& cases) {
  std::vector<CaseRecord> best;
  std::map<std::string, size_t> places;
  const auto seconds = [](const CaseRecord& r) { return r.summary.number("median_s", r.where); };
  for (CaseRecord record : cases) {
    if (record.parameters.has("again_of")) record.key = record.parameters.text("again_of", record.where);
    const auto [place, fresh] = places.try_emplace(record.key, best.size());
    if (fresh) {
      best.push_back(std::move(record));
      continue;
    }
    CaseRecord& earlier = best[place->second];
    if (earlier.status == CaseStatus::wrong) continue;  // a later correct result does not change that
    if (record.status != CaseStatus::ok ? record.status == CaseStatus::wrong
                                        : earlier.status != CaseStatus::ok || seconds(record) < seconds(earlier))
      earlier = std::move(record);
  }
  return best;
}

Fields case_parameters(const Profile& cluster, std::string_view op) {
  return {{"cluster", cluster.name},
          {"nodes", int64_t{cluster.nodes}},
          {"ranks_per_node", int64_t{cluster.ranks_per_node}},
          {"op", std::string(op)}};
}

FittedProfile fit_profile(const std::vector<CaseRecord>& cases, const std::string& name, const std::string& source) {
  require<BadInput>(is_profile_name(name), "name: found {}, expected {}", quoted_text(name), kProfileName);
  FittedProfile out;
  out.profile.name = name;
  out.profile.source = source;
  take_cluster(out.profile, cases);
  std::map<RowKey, std::vector<FitSample>> samples;
  std::map<RowKey, std::vector<TermSample>> of_tasks;
  std::map<RowKey, Repetitions> repetitions;
  // Seconds by case name, without cases that were measured again on purpose.
  std::map<std::string, std::vector<double>> times;
  for (const CaseRecord& record : cases)
    if (record.status == CaseStatus::ok && !record.parameters.has("again_of") && record.summary.has("median_s"))
      std::ranges::copy(times_of(record), std::back_inserter(times[record.key]));
  std::set<RowKey> in_layers;  // keys of collectives that layers ran
  for (const CaseRecord& record : best_attempts(cases)) {
    if (record.status != CaseStatus::ok) continue;
    if (take_whole(out.profile, record)) continue;
    const RowKey key = key_of(record, out.profile);
    if (key.table == RowKey::Table::task) {
      of_tasks[key].push_back(term_sample_of(record));
    } else {
      samples[key].push_back(sample_of(record, key));
      const bool by_size = key.table == RowKey::Table::comm;
      const auto found = times.find(record.key);
      std::ranges::copy(found != times.end() ? found->second : times_of(record),
                        std::back_inserter(repetitions[key][{by_size ? "" : record.key, samples[key].back().size}]));
    }
    if (key.table == RowKey::Table::comm && record.parameters.has("layer")) in_layers.insert(key);
  }
  for (const auto& [key, of_key] : of_tasks) {
    TaskRow row{.name = key.op, .phase = key.phase, .dtype = key.dtype};
    try {
      fit_terms(of_key, row_name(row), row);
      require_price(std::ranges::max(row.seconds_per_term), 0, row_name(row));
      out.profile.tasks.push_back(std::move(row));
    } catch (const FitError& none) {
      add_unusable(out, row_name(row), none);
    }
  }
  require<BadInput>(!samples.empty() || !of_tasks.empty(),
                    "fit: found no measured case, expected records of a microbench");
  for (const auto& [key, of_key] : samples) {
    FittedRow row{name_of(key), {}, {}};
    try {
      row.fit = fit_linear(of_key, row.what);
      if (key.table == RowKey::Table::comm) fit_curve(of_key, row.what, row.fit);
      const double longest = row.fit.points.empty() ? 0 : row.fit.points.back()[1];
      require_price(std::max(row.fit.alpha_s, longest), row.fit.beta, row.what);
    } catch (const FitError& none) {
      const bool priced = std::ranges::max(of_key, {}, &FitSample::seconds).seconds <= kSeconds.max;
      if (!in_layers.contains(key) || !priced) {
        add_unusable(out, row.what, none);
        continue;
      }
      row.fit = fit_without_line(of_key, none.why());
    }
    judge_spread(repetitions.at(key), row.fit);
    add_row(out.profile, key, row.fit);
    out.rows.push_back(std::move(row));
  }
  return out;
}

}  // namespace moe
