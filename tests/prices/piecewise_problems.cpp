// Prints random curves with our pieces of them as JSON, for oracle/piecewise_knots.py.
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "moe/prices/curve_fit.h"
#include "tests/prices/random_curve.h"

int main() {
  constexpr uint64_t kCurves = 60;
  nlohmann::json curves = nlohmann::json::array();
  for (uint64_t seed = 5001; curves.size() < kCurves; ++seed) {
    const moe::Points samples = moe::random_samples(seed);
    if (samples.size() < 6) continue;
    const moe::PiecewiseCurve line = moe::fit_pieces(samples, "line", 1);
    const moe::PiecewiseCurve pieces = moe::fit_pieces(samples, "pieces", 4);
    curves.push_back({{"samples", samples},
                      {"line", line.knots},
                      {"line_held_out", line.held_out},
                      {"knots", pieces.knots},
                      {"held_out", pieces.held_out}});
  }
  fmt::print("{}\n", curves.dump());
}
