#pragma once
// MoNTA's tables and figures beside our numbers.
#include <array>
#include <string_view>

#include "commands/reproduce/assume.h"
#include "moe/search/degrees.h"

namespace moe::reproduce {

// MoNTA's cost model (MoNTA, equations 8 to 16) in closed form: one AlltoAll of volume I over t tensor-parallel ranks
// of a node and e experts' nodes.

enum class MontaStrategy : int { baseline, o1, o2, o3 };
std::string_view name_of(MontaStrategy strategy);

/// The seconds of one task of each kind; volumes are bytes as the paper counts them.
struct MontaTimes {
  double alltoall = 0;   // time for the whole volume (baseline) or for I / (N t) (O1 to O3)
  double allgather = 0;  // time for I / N
  double copy = 0;       // time to change the layout of I / N; 0 for N = 1
};

/// Returns the seconds of a strategy with `chunks` chunks (baseline and O1: 1).
///   O1  AA + AG                                        (equation 11)
///   O2  AA < AG + D2D ? AA + N (AG + D2D) : N AA + AG + D2D
///   O3  AA < AG ? AA + N AG + D2D : N AA + AG + D2D    (Algorithm 2)
double monta_seconds(MontaStrategy strategy, const MontaTimes& times, int chunks);

/// Time as a linear function of the volume, alpha + bytes * beta: an efficiency curve between two of its
/// points.
struct AlphaBetaLine {
  double alpha_s = 0, beta_s_per_byte = 0;
  double seconds(double bytes) const { return alpha_s + bytes * beta_s_per_byte; }
};
AlphaBetaLine line_through(double bytes_1, double seconds_1, double bytes_2, double seconds_2);

/// The platform of MoNTA's experiments: 2 nodes of 8 A800.
struct MontaPlatform {
  double inter_bytes_per_s = 25e9, intra_bytes_per_s = 200e9;  // B1, B2
  double copy_bytes_per_s = 0;                                 // B3 r3
  int tensor = 8, experts = 2;                                 // t, e
  AlphaBetaLine alltoall, allgather;                           // from Table 8

  /// Returns the seconds at efficiency 1 (equations 8 and 9).
  double ideal_alltoall_s(double bytes) const;
  double ideal_allgather_s(double bytes) const;
  /// Returns the times of the strategy's tasks for a volume of `bytes` in `chunks` chunks.
  MontaTimes times(MontaStrategy strategy, double bytes, int chunks) const;
  double seconds(MontaStrategy strategy, double bytes, int chunks) const;
};

/// Returns lines through Table 8's points: AlltoAll at 8 and 256, AllGather at 64 and 256 million bytes, copy at 64.
MontaPlatform table8_platform();

/// Returns the volume I of a sequence in bytes, proportional to Table 8's 256 million for 8 thousand tokens.
double monta_bytes(int thousand_tokens);

/// The number of chunks of O2 and O3 in the paper's figures.
inline constexpr int kMontaChunks = 4;
inline constexpr std::array kMontaStrategies{MontaStrategy::o1, MontaStrategy::o2, MontaStrategy::o3};

// MoNTA's strategies by the plans that run: the schedules monta-baseline, monta-o1 to -o3 and monta on the preset a800
// and layers of the model moe-2x70b.

/// Returns the preset with the assumptions; without assumptions (null), lanes do not slow each other. Exchanges are
/// priced only by Table 8; all other rows of the preset are assumed.
Profile monta_cluster(const Assumptions* assumed);

/// Returns the schedule's name, such as "monta-o1".
std::string_view schedule_of(MontaStrategy strategy);

/// One layer's part of a training step, without the sums of gradients: seconds, and FLOPs of a rank.
struct MontaStep {
  double seconds = 0, exchange_s = 0, flops = 0;  // exchange_s: time that the layer's four exchanges add
  double share() const { return exchange_s / seconds; }
};

/// The bytes of a rank for the experts of the whole model with Adam, 16 P2 / (p t e) (MoNTA Table 3), and the number of
/// layers that these include.
struct MontaExperts {
  double bytes = 0;
  int layers = 0;
};
MontaExperts monta_experts(const Profile& profile);

/// Times a layer with a sequence of `thousand_tokens` times 1024 tokens.
class MontaLayer {
 public:
  MontaLayer(const Profile& profile, int thousand_tokens);
  MontaLayer(const Profile&&, int) = delete;  // a temporary profile would not outlive the layer

  /// Returns the tokens that all ranks train in a step.
  double tokens() const;
  /// Returns the volume I of equation 3, with its missing k, in bytes.
  double dispatch_bytes() const;
  /// Returns the seconds of one AlltoAll of the layer, as in Figure 14: dispatch, AllGather and copy, until the expert
  /// can begin. `chunks`: for O2 and O3.
  double exchange_s(MontaStrategy strategy, int chunks) const;
  MontaStep step(MontaStrategy strategy, int chunks) const;
  /// Returns the decision of `monta`, with the number of chunks tuned.
  Decision choice() const;

 private:
  Decision decision(MontaStrategy strategy, int chunks) const;
  LayerPricer pricer_;
};

/// Seconds of one layer with a sequence of 8K that CP cuts over the nodes; EP, CP and gradients share the link.
struct MontaPriority {
  LayerCase shape;
  double shared_s = 0;  // seconds if gradients share the link with AlltoAlls and CP's exchanges
  double behind_s = 0;  // seconds if gradients only start while neither of these waits or runs
};
MontaPriority monta_priority(const Profile& profile);

/// Returns the strategy with the shortest exchange, O2 and O3 with `chunks` chunks.
MontaStrategy min_exchange_strategy(const MontaLayer& layer, int chunks);

}  // namespace moe::reproduce
