// nccl-tests on one node: each size by the others, on one line and on pieces.
#include <algorithm>
#include <future>
#include <map>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/cost/piecewise.h"
#include "reproduce/published.h"

namespace moe::reproduce {
namespace {

std::vector<std::string> row_of(const std::string& gpu, const std::string& op, const std::vector<double>& line,
                                const std::vector<double>& pieces, size_t most_pieces) {
  return {gpu,
          op,
          fmt::format("{}", line.size()),
          percent(median(line)),
          percent(*std::ranges::max_element(line)),
          percent(median(pieces)),
          percent(*std::ranges::max_element(pieces)),
          fmt::format("{}", most_pieces)};
}

void add_errors(CurveErrors& errors, const std::map<int, Points>& by_ranks) {
  for (const auto& [ranks, points] : by_ranks) {
    const std::string what = fmt::format("{} {} {}", errors.gpu, errors.op, ranks);
    const PiecewiseCurve line = fit_pieces(points, what, 1), pieces = fit_pieces(points, what);
    errors.line.insert(errors.line.end(), line.held_out.begin(), line.held_out.end());
    errors.pieces.insert(errors.pieces.end(), pieces.held_out.begin(), pieces.held_out.end());
    errors.most_pieces = std::max(errors.most_pieces, pieces.knots.size() - 1);
  }
}

}  // namespace

std::vector<CurveErrors> curve_errors(const std::vector<PublishedCollective>& samples) {
  std::map<std::pair<std::string, std::string>, std::map<int, Points>> curves;
  for (const PublishedCollective& s : samples) curves[{s.gpu, s.op}][s.ranks].push_back({s.bytes, s.seconds});
  std::vector<CurveErrors> all;
  for (const auto& [name, by_ranks] : curves) all.push_back({name.first, name.second, {}, {}, 0});
  std::vector<std::future<void>> fits;  // a curve takes a tenth of a second
  size_t i = 0;
  for (const auto& [name, by_ranks] : curves)
    fits.push_back(
        std::async(std::launch::async, [&errors = all[i++], &groups = by_ranks] { add_errors(errors, groups); }));
  for (std::future<void>& fit : fits) fit.get();
  return all;
}

TextTable curve_table(const std::vector<CurveErrors>& errors) {
  TextTable table{"each size of nccl-tests by the other sizes: error on one line, and on pieces",
                  {"gpu", "op", "sizes", "line median", "line worst", "pieces median", "pieces worst", "most pieces"},
                  {}};
  CurveErrors all{"all", "all", {}, {}, 0};
  for (const CurveErrors& e : errors) {
    table.rows.push_back(row_of(e.gpu, e.op, e.line, e.pieces, e.most_pieces));
    all.line.insert(all.line.end(), e.line.begin(), e.line.end());
    all.pieces.insert(all.pieces.end(), e.pieces.begin(), e.pieces.end());
    all.most_pieces = std::max(all.most_pieces, e.most_pieces);
  }
  table.rows.push_back(row_of(all.gpu, all.op, all.line, all.pieces, all.most_pieces));
  return table;
}

}  // namespace moe::reproduce
