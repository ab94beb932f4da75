// Prints random problems of Algorithm 1 with our minima as JSON, for oracle/algorithm1_slsqp.py.
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/search/algorithm1_draws.h"

int main() {
  using moe::ChunkTime;
  constexpr uint64_t kSeed = 20250513;
  constexpr int kMax = 64, kProblems = 200;
  nlohmann::json problems = nlohmann::json::array();
  for (uint64_t i = 0; i < kProblems; ++i) {
    const moe::PhaseCosts costs = moe::algorithm1_draws::random_costs(kSeed, i, i % 3 != 0);
    const auto line = [](const ChunkTime& l) { return nlohmann::json{l.alpha_s, l.whole_s}; };
    nlohmann::json minima = nlohmann::json::array();
    for (const auto& minimum : moe::case_minima(costs, kMax))
      minima.push_back(minimum ? nlohmann::json{minimum->degree, minimum->seconds} : nlohmann::json());
    problems.push_back({{"alltoall", line(costs.alltoall)},
                        {"allgather", line(costs.allgather)},
                        {"reducescatter", line(costs.reducescatter)},
                        {"expert", line(costs.expert)},
                        {"gar_s", costs.gar_s},
                        {"minima", minima}});
  }
  fmt::print("{}\n", nlohmann::json{{"seed", kSeed}, {"most", kMax}, {"problems", problems}}.dump());
}
