#include "tuner/fit.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>

#include "moe/base/exit_code.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/out_file.h"
#include "moe/plan/model_file.h"
#include "moe/record/reader.h"
#include "moe/record/stamp.h"
#include "tuner/fit_report.h"

namespace moe::tuner {
namespace {

// Holds what is fitted, and where it was measured.
struct Measured {
  std::vector<CaseRecord> cases;
  std::string source;
};

Measured measured_in(const std::vector<std::string>& files) {
  Measured measured;
  for (const std::string& file : files) {
    const Run run = read_last_run(file);
    const size_t before = measured.cases.size();
    std::ranges::copy_if(run.cases, std::back_inserter(measured.cases),
                         [](const CaseRecord& record) { return record.parameters.has("op"); });
    require<BadInput>(measured.cases.size() > before, "{}: found no case of an operation, expected records of {}", file,
                      "`moetune microbench` or of `moetune import`");
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

}  // namespace

int run_fit(const FitOptions& options) {
  const auto [cases, source] = measured_in(options.records);
  std::string name = options.name;
  if (name.empty()) name = fmt::format("{}{}", cases.front().parameters.text("cluster", cases.front().where), kFitted);
  const FittedProfile fitted = fit_profile(cases, name, source);
  require<BadInput>(!fitted.rows.empty(), "{}: found cases of tasks alone, expected some of collectives or compute",
                    fmt::join(options.records, ", "));
  const FittedRow& first = fitted.rows.front();
  require<BadInput>(std::ranges::any_of(fitted.rows, &std::string::empty, &FittedRow::unusable), "{}: {}: {}",
                    fmt::join(options.records, ", "), first.what, first.unusable);
  const std::string out = options.out.empty() ? "results/" + name + ".toml" : options.out;
  require_other_file(out, options.records);
  save_profile(fitted.profile, out);
  const int code = options.strict && !std::ranges::all_of(fitted.rows, &FittedRow::good) ? kDoubtful : kOk;
  if (options.json) {
    for (const FitWarning& warning : fit_warnings(fitted)) log_warning(warning.text);
    fmt::print("{}\n", document_text(Json{{"profile", out}, {"rows", fit_json(fitted)}}));
    return code;
  }
  const auto truth = pacing_profile(cases);
  fmt::print("{} (beta per byte, or per FLOP)\n{}\nwritten to {}\n", name, fit_table(fitted, truth ? &*truth : nullptr),
             out);
  return code;
}

}  // namespace moe::tuner
