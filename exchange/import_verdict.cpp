#include "exchange/import_verdict.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "moe/base/log.h"
#include "moe/base/shell_word.h"
#include "moe/cost/fit.h"
#include "moe/record/reader.h"

namespace moe::exchange {
namespace {

// Are the rows that any plan needs; several ranks a node, or stages, need more.
constexpr std::array<std::string_view, 5> kAsked{"gemm", "alltoall", "allgather", "reducescatter", "allreduce"};

struct RowsByVerdict {
  std::vector<std::string> good, weak, unusable;
};

RowsByVerdict verdicts_of(const std::vector<FittedRow>& rows) {
  RowsByVerdict found;
  for (const FittedRow& row : rows) {
    if (row.good())
      found.good.push_back(row.what);
    else if (row.unusable.empty())
      found.weak.push_back(fmt::format("{} ({})", row.what, row.fit.weak));
    else
      found.unusable.push_back(fmt::format("{} ({})", row.what, row.unusable));
  }
  return found;
}

std::vector<std::string_view> missing_ops(const std::vector<FittedRow>& rows) {
  std::vector<std::string_view> missing;
  for (const std::string_view op : kAsked)
    if (std::ranges::none_of(rows, [&](const FittedRow& row) {
          return row.unusable.empty() && row.what.starts_with(fmt::format("{} ", op));
        }))
      missing.push_back(op);
  return missing;
}

}  // namespace

void say_what_fits(const ImportOptions& options) {
  const FittedProfile fitted = fit_profile(read_last_run(options.out).cases, options.cluster, options.out);
  const auto [good, weak, unusable] = verdicts_of(fitted.rows);
  const auto say = [](std::string_view what, const std::vector<std::string>& rows) {
    if (!rows.empty()) log_info(fmt::format("{}: {}", what, fmt::join(rows, "; ")));
  };
  say("rows that fit well", good);
  say("rows whose fit is weak, what they price is labelled", weak);
  say("rows that can't be used", unusable);
  if (!weak.empty() || !unusable.empty())
    log_info(
        "for those: time three sizes or more, up to the largest that a layer sends, several times each, and import "
        "all files together");
  const std::vector<std::string_view> missing = missing_ops(fitted.rows);
  if (!missing.empty())
    log_info(
        fmt::format("a plan may need rows beside these: {} (docs/exchange.md); tune --nearest borrows other sizes'",
                    fmt::join(missing, ", ")));
  if (!good.empty() || !weak.empty())
    log_info(fmt::format("next: ./moetune fit --records {} --out results/{}.toml", shell_word(options.out),
                         options.cluster));
}

}  // namespace moe::exchange
