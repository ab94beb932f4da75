#include "tuner/fit.h"

#include <algorithm>

#include "moe/base/exit_code.h"
#include "moe/base/log.h"
#include "moe/record/reader.h"
#include "moe/record/stamp.h"
#include "tuner/fit_report.h"
#include "verbs/results_json.h"

namespace moe::tuner {
namespace {

// Returns the profile that paced the records' emulated cluster, if it is one of ours.
std::optional<Profile> pacing_profile(const Run& run) {
  for (const CaseRecord& record : run.cases)
    if (record.emulated) {
      try {
        return find_profile(record.parameters.text("cluster", record.where));
      } catch (const BadInput&) {
        return std::nullopt;
      }
    }
  return std::nullopt;
}

}  // namespace

int run_fit(const FitOptions& options) {
  const Run run = read_last_run(options.records);
  std::vector<CaseRecord> cases;
  for (const CaseRecord& record : run.cases)
    if (record.parameters.has("op")) cases.push_back(record);
  require<BadInput>(!cases.empty(), "{}: found no microbench case, expected records of `moetune microbench`",
                    options.records);
  std::string name = options.name;
  if (name.empty()) name = cases.front().parameters.text("cluster", cases.front().where) + "-fitted";
  const FittedProfile fitted = fit_profile(
      cases, name, fitted_from(options.records, run.header.started, run.header.machine, cases.front().emulated));
  const FittedRow& first = fitted.rows.front();
  require<BadInput>(std::ranges::any_of(fitted.rows, &std::string::empty, &FittedRow::unusable), "{}: {}: {}",
                    options.records, first.what, first.unusable);
  const std::string out = options.out.empty() ? "results/" + name + ".toml" : options.out;
  save_profile(fitted.profile, out);
  const bool doubtful = std::ranges::any_of(
      fitted.rows, [](const FittedRow& row) { return !row.unusable.empty() || !row.fit.weak.empty(); });
  const int code = options.strict && doubtful ? kDoubtful : kOk;
  if (options.json) {
    for (const std::string& line : fit_warnings(fitted)) log_warning(line);
    fmt::print("{}\n", Json{{"profile", out}, {"rows", fit_json(fitted)}}.dump(1));
    return code;
  }
  const auto truth = pacing_profile(run);
  fmt::print("{} (beta per byte, or per FLOP)\n{}\nwritten to {}\n", name, fit_table(fitted, truth ? &*truth : nullptr),
             out);
  return code;
}

}  // namespace moe::tuner
