#include "tuner/fit.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/table.h"
#include "moe/record/machine.h"
#include "moe/record/reader.h"
#include "moe/shape/model_file.h"

namespace moe::tuner {
namespace {

// The cases to fit, and their origin in words, which the profile records.
struct Measured {
  std::vector<CaseRecord> cases;
  std::string source;
};

Measured measured_in(const std::vector<std::string>& files) {
  Measured measured;
  for (const std::string& file : files) {
    const Run run = read_last_run(file);
    const size_t before = measured.cases.size();
    int64_t of_one_gpu = 0;
    for (const CaseRecord& record : run.cases) {
      if (!record.parameters.has("op")) continue;
      const bool shared = record.backend == kNcclOnOneGpu;
      of_one_gpu += shared ? 1 : 0;
      if (!shared) measured.cases.push_back(record);
    }
    require<BadInput>(measured.cases.size() > before || of_one_gpu == 0,
                      "{}: found only cases whose ranks shared one GPU, expected ranks with a GPU each", file);
    require<BadInput>(measured.cases.size() > before, "{}: found no case of an operation, expected records of {}", file,
                      "`moetune microbench` or of `moetune import`");
    if (of_one_gpu > 0)
      log_warning(
          fmt::format("{}: skipped {}, because their ranks shared one GPU, whose times are neither a network's "
                      "nor a GPU's",
                      file, counted(of_one_gpu, "case")));
    measured.source +=
        (measured.source.empty() ? "" : "; ") + fitted_from(file, run.header, measured.cases[before].emulated);
  }
  return measured;
}

// Returns the profile that paced the records' emulated cluster, if it is one of ours.
std::optional<Profile> pacing_profile(const std::vector<CaseRecord>& cases) {
  const auto paced = std::ranges::find_if(cases, &CaseRecord::emulated);
  if (paced == cases.end()) return std::nullopt;
  try {
    return find_profile(paced->parameters.text("cluster", paced->where));
  } catch (const BadInput&) {
    return std::nullopt;
  }
}

// Copies prices of computations that the records lack from another cluster's profile.
void take_missing(const FitOptions& options, const std::string& out, Profile& profile) {
  if (options.compute_from.empty()) return;
  const Profile other = find_profile(options.compute_from);
  require_other_file(out, {other.file});
  require<BadInput>(!take_compute_prices(profile, other).empty(),
                    "--compute-from: found {}, expected a profile with rows of computations that the records lack",
                    other.name);
  profile.source += fmt::format("; not measured: {}", text_of_origins(profile));
}

// Copies ranks, collectives and contention from another cluster's profile, for records measured on one of its GPUs, and
// the prices of computations that the records lack.
void take_network(const FitOptions& options, const std::string& out, Profile& profile) {
  if (options.network_from.empty()) return;
  const Profile other = find_profile(options.network_from);
  require_other_file(out, {other.file});
  profile.nodes = other.nodes;
  profile.ranks_per_node = other.ranks_per_node;
  profile.memory_bytes = other.memory_bytes;
  profile.contention = other.contention;
  profile.comm = other.comm;
  for (CommRow& row : profile.comm)
    if (row.verdict.origin.empty()) row.verdict.origin = "from " + other.name;
  take_compute_prices(profile, other);
  profile.source += fmt::format("; not measured: {}", text_of_origins(profile));
}

}  // namespace

int run_fit(const FitOptions& options) {
  auto [cases, source] = measured_in(options.records);
  if (!options.network_from.empty())
    std::erase_if(cases, [](const CaseRecord& record) { return record.parameters.has("network"); });
  require<BadInput>(!cases.empty(), "--network-from: found only records of collectives, expected computations");
  std::string name = options.name;
  if (name.empty()) name = fmt::format("{}{}", cases.front().parameters.text("cluster", cases.front().where), kFitted);
  FittedProfile fitted = fit_profile(cases, name, source);
  require<BadInput>(!fitted.rows.empty() || !options.network_from.empty(),
                    "{}: found only cases of tasks, expected cases of collectives or computations",
                    fmt::join(options.records, ", "));
  const auto is_usable = [](const FittedRow& row) { return !row.unusable; };
  const bool has_tasks = !options.network_from.empty() && !fitted.profile.tasks.empty();
  if (!has_tasks && std::ranges::none_of(fitted.rows, is_usable))
    bad_input("{}: {}: {}", fmt::join(options.records, ", "), fitted.rows.front().what,
              fitted.rows.front().unusable.value_or(""));
  const std::string out = options.out.empty() ? "results/" + name + ".toml" : options.out;
  take_missing(options, out, fitted.profile);
  take_network(options, out, fitted.profile);
  require_other_file(out, options.records);
  save_profile(fitted.profile, out);
  const bool sound =
      std::ranges::all_of(fitted.rows, &FittedRow::good) &&
      std::ranges::none_of(fitted.profile.tasks, [](const TaskRow& row) { return row.verdict.weak.has_value(); });
  const int code = options.strict && !sound ? kDoubtful : kOk;
  if (options.json) {
    for (const FitWarning& warning : fit_warnings(fitted)) log_warning(warning.text);
    Json document{{"profile", out}, {"rows", fit_json(fitted)}};
    if (const std::string origins = text_of_origins(fitted.profile); !origins.empty())
      document["not_measured"] = origins;
    fmt::print("{}\n", document_text(document));
    return code;
  }
  const auto truth = pacing_profile(cases);
  fmt::print("{} (beta per byte, or per FLOP)\n{}\nwritten to {}\n", name, fit_table(fitted, truth ? &*truth : nullptr),
             out);
  return code;
}

bool was_timed(const CaseRecord& record) { return record.summary.has("total_s"); }
bool is_sound_run(const CaseRecord& record) { return record.status == CaseStatus::ok && was_timed(record); }
double predicted_s(const CaseRecord& record) { return record.prediction.number("total_s", record.key); }
double run_s(const CaseRecord& record) { return record.summary.number("total_s", record.key); }
double error_of(const CaseRecord& record) { return run_s(record) / predicted_s(record) - 1; }

double core_slowdown(const CaseRecord& record) {
  return record.summary.has("core_slowdown") ? record.summary.number("core_slowdown", record.key) : 1;
}

namespace {

struct Truth {
  double alpha_s, beta;
};

// Returns the row of `truth` that corresponds to the fitted row of this name.
std::optional<Truth> truth_of(const std::string& name, const Profile& truth) {
  for (const CommRow& t : truth.comm)
    if (row_name(t) == name) return Truth{t.alpha_s, t.beta_s_per_byte};
  for (const ComputeRow& t : truth.compute)
    if (row_name(t) == name) return Truth{t.alpha_s, t.beta_s_per_flop};
  for (const ModuleRow& t : truth.modules)
    if (row_name(t) == name) return Truth{t.alpha_s, t.beta()};
  return std::nullopt;
}

std::string percent_if(const std::optional<double>& share) {
  if (!share) return "-";
  return *share < 10 ? percent(*share, 2) : fmt::format("{:.3g} %", 100 * *share);
}

constexpr int kCurve = 5;  // index of the column of the curves' errors, in tables that have it

std::vector<std::string> cells_of(const FittedRow& row, const Profile* truth, bool curves) {
  const LinearFit& fit = row.fit;
  std::vector<std::string> cells{row.what + (row.good() ? "" : " !")};
  if (row.unusable) {
    cells.resize((truth ? 9 : 7) + (curves ? 1 : 0), "-");
    return cells;
  }
  cells.insert(cells.end(), {fmt::format("{:.1f}{}", fit.alpha_s * 1e6, fit.alpha_clamped ? "*" : ""),
                             fmt::format("{:.5g}", fit.beta * 1e12), r_squared_text(fit.r_squared),
                             percent_if(fit.line_error ? fit.line_error : fit.held_out_error),
                             percent_if(fit.held_out_worst), fmt::format("{}", fit.set_aside.size())});
  if (curves) cells.insert(cells.begin() + kCurve, fit.line_error ? percent_if(fit.held_out_error) : "-");
  if (!truth) return cells;
  const auto t = truth_of(row.what, *truth);
  cells.push_back(t ? fmt::format("{:+.1f}", (fit.alpha_s - t->alpha_s) * 1e6) : "-");
  cells.push_back(t ? fmt::format("{:.4f}", fit.beta / t->beta) : "-");
  return cells;
}

std::string slowdowns(const Contention& c) {
  std::string text;
  for (const ContentionPair& pair : contention_pairs())
    if (c.*pair.factor > 1)
      text += fmt::format("{}{} by {} {:.2f}x", text.empty() ? "" : ", ", name_of(pair.slowed), name_of(pair.by),
                          c.*pair.factor);
  return text.empty() ? text : fmt::format("\n  lanes slow each other: {}\n", text);
}

std::string task_table(const Profile& profile) {
  if (profile.tasks.empty()) return {};
  Table table({"task, in its layer", "grows with", "held-out", "worst"});
  for (const TaskRow& row : profile.tasks) {
    std::string terms;
    for (size_t t = 0; t < kTerms; ++t)
      if (row.seconds_per_term[t] > 0)
        terms +=
            fmt::format("{}{:.3g} ps a {}", terms.empty() ? "" : ", ", 1e12 * row.seconds_per_term[t], term_names()[t]);
    table.add({fmt::format("{} {}{}", row.name, name_of(row.phase), row.verdict.weak ? " !" : ""), terms,
               percent_if(row.held_out_error), percent_if(row.verdict.held_out_worst)});
  }
  return fmt::format("\n{}", table.text());
}

}  // namespace

std::string fit_table(const FittedProfile& fitted, const Profile* truth) {
  std::vector<std::string> header{"op", "alpha us", "beta ps/unit", "r^2", "held-out", "worst", "outliers"};
  const bool curves =
      std::ranges::any_of(fitted.rows, [](const FittedRow& row) { return row.fit.line_error.has_value(); });
  if (curves) header.insert(header.begin() + kCurve, "curve");
  if (truth) header.insert(header.end(), {"alpha - true us", "beta / true"});
  Table table(header);
  table.hide_first({"outliers"}, "--wide");
  for (const FittedRow& row : fitted.rows) table.add(cells_of(row, truth, curves));
  const std::string ops = fitted.rows.empty() ? "" : table.text();
  std::string text = ops + task_table(fitted.profile) + slowdowns(fitted.profile.contention);
  if (const std::string origins = text_of_origins(fitted.profile); !origins.empty())
    text += fmt::format("\n  not measured: {}\n", origins);
  for (const FitWarning& warning : fit_warnings(fitted)) text += fmt::format("  warning: {}\n", warning.text);
  return text;
}

Json fit_json(const FittedProfile& fitted) {
  Json rows = Json::array();
  for (const auto& [what, fit, unusable] : fitted.rows) {
    if (unusable) {
      rows.push_back({{"op", what}, {"unusable", *unusable}});
      continue;
    }
    Json row{{"op", what},
             {"alpha_s", fit.alpha_s},
             {"beta", fit.beta},
             {"r_squared", fit.r_squared},
             {"r_squared_kept", fit.r_squared_kept},
             {"held_out_error", nullptr},
             {"held_out_worst", nullptr},
             {"samples", fit.samples},
             {"set_aside", Json::array()}};
    if (fit.held_out_error) row["held_out_error"] = *fit.held_out_error;
    if (fit.line_error) row["line_error"] = *fit.line_error, row["points"] = fit.points;
    if (fit.held_out_worst) row["held_out_worst"] = *fit.held_out_worst;
    for (const SetAsideSample& s : fit.set_aside)
      row["set_aside"].push_back({{"case", s.name}, {"size", s.size}, {"s", s.seconds}, {"expected_s", s.expected_s}});
    if (fit.weak) row["weak"] = *fit.weak;
    rows.push_back(std::move(row));
  }
  for (const TaskRow& row : fitted.profile.tasks) {
    Json json{{"op", row_name(row)}, {"held_out_error", nullptr}, {"held_out_worst", nullptr}};
    for (size_t t = 0; t < kTerms; ++t)
      if (row.seconds_per_term[t] > 0) json[fmt::format("s_per_{}", term_names()[t])] = row.seconds_per_term[t];
    if (row.held_out_error) json["held_out_error"] = *row.held_out_error;
    if (row.verdict.held_out_worst) json["held_out_worst"] = *row.verdict.held_out_worst;
    if (row.verdict.weak) json["weak"] = *row.verdict.weak;
    rows.push_back(std::move(json));
  }
  return rows;
}

void save_profile(const Profile& profile, const std::string& path) {
  make_folders_above(path);
  write_whole_file(path, "a file for the profile", [&](std::ostream& out) { write_profile(profile, out); });
}

}  // namespace moe::tuner
