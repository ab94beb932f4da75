#include "tuner/fit_report.h"

#include <cmath>
#include <filesystem>

#include "moe/base/check.h"
#include "moe/base/table.h"
#include "moe/base/whole_file.h"

namespace moe {
namespace {

struct Truth {
  double alpha_s, beta;
};

// The row of `truth` for what row `i` of the fitted profile stands for; rows are [[comm]], [[compute]], [[module]].
std::optional<Truth> truth_of(const Profile& fitted, size_t i, const Profile& truth) {
  if (i < fitted.comm.size()) {
    const CommRow& row = fitted.comm[i];
    for (const CommRow& t : truth.comm)
      if (t.op == row.op && t.network == row.network && t.ranks == row.ranks && t.algorithm == row.algorithm)
        return Truth{t.alpha_s, t.beta_s_per_byte};
    return std::nullopt;
  }
  i -= fitted.comm.size();
  if (i < fitted.compute.size()) {
    for (const ComputeRow& t : truth.compute)
      if (t.op == fitted.compute[i].op && t.dtype == fitted.compute[i].dtype)
        return Truth{t.alpha_s, t.beta_s_per_flop};
    return std::nullopt;
  }
  const ModuleRow& row = fitted.modules.at(i - fitted.compute.size());
  for (const ModuleRow& t : truth.modules)
    if (t.name == row.name && t.phase == row.phase && t.seq == row.seq) return Truth{t.alpha_s, t.beta()};
  return std::nullopt;
}

std::string slowdowns(const Contention& c) {
  std::string text;
  const auto add = [&](std::string_view pair, double factor) {
    if (factor > 1) text += fmt::format("{}{} {:.2f}x", text.empty() ? "" : ", ", pair, factor);
  };
  add("inter by intra", c.inter_by_intra);
  add("inter by compute", c.inter_by_compute);
  add("intra by inter", c.intra_by_inter);
  add("intra by compute", c.intra_by_compute);
  add("compute by inter", c.compute_by_inter);
  add("compute by intra", c.compute_by_intra);
  return text.empty() ? text : fmt::format("\n  lanes slow each other: {}\n", text);
}

}  // namespace

std::string fit_table(const FittedProfile& fitted, const Profile* truth) {
  std::vector<std::string> header{"op", "alpha us", "beta ps/unit", "r^2", "held-out"};
  if (truth) header.insert(header.end(), {"alpha - true us", "beta / true"});
  Table table(header);
  for (size_t i = 0; i < fitted.rows.size(); ++i) {
    const LinearFit& fit = fitted.rows[i].fit;
    std::vector<std::string> cells{fitted.rows[i].what,
                                   fmt::format("{:.1f}{}", fit.alpha_s * 1e6, fit.alpha_clamped ? "*" : ""),
                                   fmt::format("{:.5g}", fit.beta * 1e12), fmt::format("{:.7f}", fit.r_squared),
                                   fit.held_out_error ? fmt::format("{:.2f} %", 100 * *fit.held_out_error) : "-"};
    if (truth) {
      const auto t = truth_of(fitted.profile, i, *truth);
      cells.push_back(t ? fmt::format("{:+.1f}", (fit.alpha_s - t->alpha_s) * 1e6) : "-");
      cells.push_back(t ? fmt::format("{:.4f}", fit.beta / t->beta) : "-");
    }
    table.add(std::move(cells));
  }
  return table.text() + slowdowns(fitted.profile.contention);
}

void save_profile(const Profile& profile, const std::string& path) {
  std::error_code ignored;  // what is in the way is found again below
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  write_whole_file(path, "a file for the profile", [&](std::ostream& out) { write_profile(profile, out); });
}

}  // namespace moe
