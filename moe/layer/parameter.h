#pragma once
// Weights and a layer's inputs begin as counter-based random numbers, so that any rank can make any part of them.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "moe/device/memory.h"
#include "moe/sharding/rank_shape.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// The source of a layer's random numbers. `skew` > 0 adds a vector common to all tokens, `skew` times a standard
/// normal, to the inputs. Hidden states then share a direction, and the gate prefers some experts; a larger skew has a
/// larger effect.
struct LayerSeed {
  uint64_t seed = 1;
  uint64_t layer = 0;
  double skew = 0;
  uint64_t micro_batch = 0;  // micro-batch of the inputs, dY and the gate's noise; all share the weights
  uint64_t step = 0;         // step of the gate's noise
  bool noisy = true;         // false: the gate's noise is zero
};

/// The ranks whose gradients add up to the whole one.
///   dp      by the plan's gradient tasks (the dense part's; each MP rank holds another part)
///   stage   every rank, outside the plan (gate: each rank saw its own tokens)
///   edp     replicas of the same experts, outside the plan
enum class SummedOver : uint8_t { dp, stage, edp };

/// This rank's part of a weight of up to three axes; `axes[i]` is its part of axis i of the whole weight.
struct Parameter {
  std::string name;
  std::array<ShardRange, 3> axes;
  TensorView value, gradient;  // (axes[0].count, axes[1].count, axes[2].count) elements, row-major
  SummedOver summed_over = SummedOver::stage;
  int copies = 1;      // how often the sum over ranks counts each token
  int dimensions = 2;  // dimensions of the whole weight, which are the last of the axes
};

/// Names of the weights and of their random streams.
inline constexpr std::string_view kWq = "wq", kWk = "wk", kWv = "wv",
                                  kWo = "wo";  // (M, heads d), (M, kv heads d) twice, (heads d, M)
/// Latent attention's: to the latents and the rotary key, (M, rank) twice and (M, rope); the gains of the latents'
/// norms, (rank); up to a head's queries (nope, then rope), keys and values, (rank, heads width), by heads.
inline constexpr std::string_view kWdq = "wdq", kWdkv = "wdkv", kWkr = "wkr", kQueryNorm = "norm_q",
                                  kKeyNorm = "norm_kv", kWuq = "wuq", kWuk = "wuk", kWuv = "wuv";
inline constexpr std::string_view kGateWeight = "gate", kGateNoise = "gate_noise";  // (E, M)
inline constexpr std::string_view kGateProjection = "gate_projection", kGateTemperature = "gate_temperature";
inline constexpr std::string_view kW1 = "w1", kW3 = "w3", kW2 = "w2";  // (E, M, H) twice, (E, H, M)
inline constexpr std::string_view kShared = "shared_";                 // before those names: (M, S) twice, (S, M)
inline constexpr std::string_view kFfn = "ffn_";                       // likewise, of a dense layer's feed-forward
inline constexpr std::string_view kNormGain1 = "norm1", kNormGain2 = "norm2";  // (M)
/// Names of the biases, if a layer has them.
inline constexpr std::string_view kBq = "bq", kBk = "bk", kBv = "bv", kBo = "bo";  // (heads d), (kv heads d) twice, (M)
inline constexpr std::string_view kB1 = "b1", kB3 = "b3", kB2 = "b2";              // (E, H) twice, (E, M)
inline constexpr std::string_view kNormBias = "_bias";                             // added to a norm's name: (M)

/// Fills a weight by name and index in the whole: normal with deviation 1 / sqrt(fan_in). If `memory` is a device's,
/// this and the functions below fill it through the host.
void fill_weight(const Parameter& weight, int64_t fan_in, const LayerSeed& seed, MemorySpace& memory = cpu_memory());

/// Fill (tokens.count, width) by global token: the layer's input, to which the skew is added, and dY.
void fill_input(TensorView rows, ShardRange tokens, const LayerSeed& seed, MemorySpace& memory = cpu_memory());
void fill_output_gradient(TensorView rows, ShardRange tokens, const LayerSeed& seed,
                          MemorySpace& memory = cpu_memory());
/// Fills the gate's noise by step, token and expert, (tokens.count, E): standard normal. Tokens are numbered in the
/// order of samples over all micro-batches of a step, so neither the number of micro-batches nor context parallelism
/// changes a token's noise.
void fill_gate_noise(TensorView rows, ShardRange tokens, const LayerCase& shape, const LayerSeed& seed,
                     MemorySpace& memory = cpu_memory());

}  // namespace moe
