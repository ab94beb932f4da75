#pragma once
// A layer's weights and inputs are initialized with counter-based random numbers, so that any rank can compute any part
// of them.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "moe/device/memory.h"
#include "moe/sharding/rank_shape.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// The source of a layer's random numbers. If `skew` > 0, the same vector, `skew` times a standard normal one, is added
/// to the input of every token. Hidden states then share a direction, so the gate prefers some experts, more strongly
/// with a larger skew.
struct LayerSeed {
  uint64_t seed = 1;
  uint64_t layer = 0;
  double skew = 0;
  uint64_t micro_batch = 0;  // selects the inputs, dY and the gate's noise; weights do not depend on it
  uint64_t step = 0;         // training step, which selects the gate's noise
  bool noisy = true;         // false: the gate's noise is zero
};

/// The group of ranks over which a parameter's gradient is summed.
///   dp      DP group, by the plan's gradient tasks: the dense part, of which each MP rank has a different shard
///   stage   all ranks of the stage, outside the plan: the gate, of which each rank has its own tokens' gradient
///   edp     replicas of the same experts, outside the plan
enum class SummedOver : uint8_t { dp, stage, edp };

/// This rank's part of a weight of up to three axes; `axes[i]` is its part of axis i of the whole weight.
struct Parameter {
  std::string name;
  std::array<ShardRange, 3> axes;
  TensorView value, gradient;  // (axes[0].count, axes[1].count, axes[2].count) elements, row-major
  SummedOver summed_over = SummedOver::stage;
  int copies = 1;      // number of times that the sum over ranks counts each token; the sum is divided by it
  int dimensions = 2;  // number of dimensions of the whole weight, which are the last of `axes`
};

/// Names of the weights, which also select their random numbers.
inline constexpr std::string_view kWq = "wq", kWk = "wk", kWv = "wv",
                                  kWo = "wo";  // (M, heads d), (M, kv heads d) twice, (heads d, M)
/// Weights of latent attention: projections to the latents, (M, rank), and to the rotary key, (M, rope); gains of the
/// latents' norms, (rank); projections from the latents to each head's queries (nope, then rope), keys and values,
/// (rank, heads width).
inline constexpr std::string_view kWdq = "wdq", kWdkv = "wdkv", kWkr = "wkr", kQueryNorm = "norm_q",
                                  kKeyNorm = "norm_kv", kWuq = "wuq", kWuk = "wuk", kWuv = "wuv";
inline constexpr std::string_view kGateWeight = "gate", kGateNoise = "gate_noise";  // (E, M)
inline constexpr std::string_view kGateProjection = "gate_projection", kGateTemperature = "gate_temperature";
inline constexpr std::string_view kW1 = "w1", kW3 = "w3", kW2 = "w2";  // (E, M, H) twice, (E, H, M)
inline constexpr std::string_view kShared = "shared_";                 // prefix of kW1 to kW2: (M, S) twice, (S, M)
inline constexpr std::string_view kFfn = "ffn_";                       // the same for a dense layer's feed-forward
inline constexpr std::string_view kNormGain1 = "norm1", kNormGain2 = "norm2";  // (M)
/// Names of the biases, if a layer has them.
inline constexpr std::string_view kBq = "bq", kBk = "bk", kBv = "bv", kBo = "bo";  // (heads d), (kv heads d) twice, (M)
inline constexpr std::string_view kB1 = "b1", kB3 = "b3", kB2 = "b2";              // (E, H) twice, (E, M)
inline constexpr std::string_view kNormBias = "_bias";                             // suffix of a norm's name: (M)

/// Fills a weight with normal numbers of deviation 1 / sqrt(fan_in), which depend on the weight's name and the
/// element's index in the whole weight. If `memory` is a device's, this and the functions below fill on the host and
/// copy.
void fill_weight(const Parameter& weight, int64_t fan_in, const LayerSeed& seed, MemorySpace& memory = cpu_memory());

/// Fill (tokens.count, width) with numbers that depend on the global token: fill_input() the layer's input, skew
/// included, and fill_output_gradient() dY.
void fill_input(TensorView rows, ShardRange tokens, const LayerSeed& seed, MemorySpace& memory = cpu_memory());
void fill_output_gradient(TensorView rows, ShardRange tokens, const LayerSeed& seed,
                          MemorySpace& memory = cpu_memory());
/// Fills (tokens.count, E) with the gate's noise: standard normal numbers that depend on step, token and expert. Tokens
/// are numbered in the order of samples over all micro-batches of a step, so neither the number of micro-batches nor
/// context parallelism changes a token's noise.
void fill_gate_noise(TensorView rows, ShardRange tokens, const LayerCase& shape, const LayerSeed& seed,
                     MemorySpace& memory = cpu_memory());

}  // namespace moe
