#include "tests/search/algorithm1_draws.h"

#include <cmath>

#include "moe/base/random.h"

namespace moe::algorithm1_draws {

PhaseCosts random_costs(uint64_t seed, uint64_t index, bool even_handed) {
  uint64_t stream = 0;
  const auto seconds = [&](double least, double decades) {  // log-uniform
    return least * std::pow(10.0, decades * random_uniform(seed, stream++, index));
  };
  const auto line = [&] { return ChunkTime{seconds(1e-5, 2), seconds(1e-3, 2)}; };
  PhaseCosts costs{line(), line(), {}, line(), 0};
  costs.reducescatter = even_handed ? costs.allgather : line();
  if (index % 2 == 1) costs.gar_s = seconds(1e-3, 2.3);
  return costs;
}

}  // namespace moe::algorithm1_draws
