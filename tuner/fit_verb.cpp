#include "tuner/fit_verb.h"

#include "moe/record/reader.h"
#include "tuner/fit_report.h"
#include "tuner/results_json.h"

namespace moe {
namespace {

// The profile that paced the records' emulated cluster, if it is one of ours.
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

Json to_json(const FittedProfile& fitted) {
  Json rows = Json::array();
  for (const FittedRow& row : fitted.rows) {
    Json json{{"op", row.what},
              {"alpha_s", row.fit.alpha_s},
              {"beta", row.fit.beta},
              {"r_squared", row.fit.r_squared},
              {"held_out_error", nullptr},
              {"samples", row.fit.samples}};
    if (row.fit.held_out_error) json["held_out_error"] = *row.fit.held_out_error;
    rows.push_back(std::move(json));
  }
  return rows;
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
  const FittedProfile fitted = fit_profile(cases, name, "fitted from " + options.records);
  const std::string out = options.out.empty() ? "results/" + name + ".toml" : options.out;
  save_profile(fitted.profile, out);
  if (options.json) {
    fmt::print("{}\n", Json{{"profile", out}, {"rows", to_json(fitted)}}.dump(1));
    return 0;
  }
  const auto truth = pacing_profile(run);
  fmt::print("{} (beta per byte, or per FLOP)\n{}\nwritten to {}\n", name, fit_table(fitted, truth ? &*truth : nullptr),
             out);
  return 0;
}

}  // namespace moe
