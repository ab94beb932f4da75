// usage: gate_times [TOKENS] [MODEL_DIM] [EXPERTS] [ROUNDS]
// Prints what each gate takes forward and backward, and the same in plain PyTorch (plain_gates.h), float32 on one
// thread: the fastest of rounds in turns, after both were compared in float64.
#include <ATen/Parallel.h>
#include <algorithm>
#include <cstdlib>

#include "moe/base/table.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/stream.h"
#include "moe/layer/gates/gate.h"
#include "tests/layer/plain_gates.h"

namespace moe {
namespace {

constexpr double kMostError = 1e-10;

struct GateTimes {
  std::vector<double> ours_s[2], plain_s[2];  // by phase, round
};

LayerCase case_of(int64_t tokens, int64_t model_dim, int64_t experts, DType dtype) {
  LayerShape layer{.batch = 1, .seq = tokens, .model_dim = model_dim, .hidden = 4, .heads = 1, .experts = experts};
  layer.top_k = 2;
  layer.capacity_factor = 1.2;
  layer.dtype = dtype;
  return complete(layer, {}, Rounding::ragged);
}

double error_of(std::string_view gate, const LayerCase& shape) {
  GatePair pair(gate, shape);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    pair.run_ours(phase);
    pair.run_plain(phase);
  }
  return pair.worst_error();
}

GateTimes time_gate(std::string_view gate, const LayerCase& shape, int rounds) {
  GatePair pair(gate, shape);
  GateTimes times;
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      const auto seconds = [&](void (GatePair::*run)(Phase)) {
        const double begin_s = now_s();
        (pair.*run)(phase);
        return now_s() - begin_s;
      };
      const double ours_s = seconds(&GatePair::run_ours), plain_s = seconds(&GatePair::run_plain);
      if (round < 0) continue;
      times.ours_s[phase == Phase::backward].push_back(ours_s);
      times.plain_s[phase == Phase::backward].push_back(plain_s);
    }
  return times;
}

int run(int64_t tokens, int64_t model_dim, int64_t experts, int rounds) {
  at::set_num_threads(1);
  const cpu::ThreadCountScope one(1);
  Table table({"gate", "forward ms", "plain ms", "ratio", "backward ms", "plain ms", "ratio", "both"});
  for (const std::string_view gate : gate_names()) {
    const double error = error_of(gate, case_of(tokens, model_dim, experts, DType::float64));
    if (error > kMostError) {
      fmt::print(stderr, "gate {}: found error {:.1e} against plain PyTorch, expected at most {:.0e}\n", gate, error,
                 kMostError);
      return 3;
    }
    const GateTimes times = time_gate(gate, case_of(tokens, model_dim, experts, DType::float32), rounds);
    std::vector<std::string> row{std::string(gate)};
    double ours_s = 0, plain_s = 0;
    for (const size_t phase : {0, 1}) {
      const double own = std::ranges::min(times.ours_s[phase]), plain = std::ranges::min(times.plain_s[phase]);
      row.insert(row.end(), {fmt::format("{:.3f}", own * 1e3), fmt::format("{:.3f}", plain * 1e3),
                             fmt::format("{:.2f}x", plain / own)});
      ours_s += own;
      plain_s += plain;
    }
    row.push_back(fmt::format("{:.2f}x", plain_s / ours_s));
    table.add(std::move(row));
  }
  fmt::print("{} tokens, M {}, {} experts, k 2, f 1.2; ratio: plain PyTorch's time over ours\n\n{}", tokens, model_dim,
             experts, table.text());
  return 0;
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  const auto argument = [&](int i, long fallback) { return argc > i ? std::atol(argv[i]) : fallback; };
  return moe::run(argument(1, 1024), argument(2, 1024), argument(3, 8), static_cast<int>(argument(4, 21)));
}
