#include "moe/measure/interleaved.h"

#include <array>
#include <benchmark/benchmark.h>
#include <string>

namespace moe::measure {

void interleave_repetitions() {
  std::string program = "moetune", flag = "--benchmark_enable_random_interleaving=true";
  std::array argv{program.data(), flag.data()};
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
}

}  // namespace moe::measure
