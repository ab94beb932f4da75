#pragma once
// MoNTA's cost model (MoNTA, equations 8 to 16) in closed form: one AlltoAll of volume I over t
// tensor-parallel ranks of a node and e experts' nodes.
#include <array>
#include <string_view>

namespace moe::reproduce {

enum class MontaStrategy : int { baseline, o1, o2, o3 };
std::string_view name_of(MontaStrategy strategy);

/// Holds the seconds of one task of each kind; volumes are bytes as the paper counts them.
struct MontaTimes {
  double alltoall = 0;   // of the whole volume, baseline; of I / (N t), O1 to O3
  double allgather = 0;  // of I / N
  double copy = 0;       // re-layout of I / N; none for N = 1
};

/// Returns the seconds of a strategy over `chunks` chunks (baseline and O1: 1).
///   O1  AA + AG                                        (equation 11)
///   O2  AA < AG + D2D ? AA + N (AG + D2D) : N AA + AG + D2D
///   O3  AA < AG ? AA + N AG + D2D : N AA + AG + D2D    (Algorithm 2)
double monta_seconds(MontaStrategy strategy, const MontaTimes& times, int chunks);

/// Holds time over volume as a straight line, alpha + bytes * beta: what an efficiency curve is between two of its
/// points.
struct TimeLine {
  double alpha_s = 0, beta_s_per_byte = 0;
  double seconds(double bytes) const { return alpha_s + bytes * beta_s_per_byte; }
};
TimeLine line_through(double bytes_1, double seconds_1, double bytes_2, double seconds_2);

/// Describes the platform of MoNTA's experiments: 2 nodes of 8 A800.
struct MontaPlatform {
  double inter_bytes_per_s = 25e9, intra_bytes_per_s = 200e9;  // B1, B2
  double copy_bytes_per_s = 0;                                 // B3 r3
  int tensor = 8, experts = 2;                                 // t, e
  TimeLine alltoall, allgather;                                // from Table 8

  /// Returns the seconds that efficiency 1 would take (equations 8 and 9).
  double ideal_alltoall_s(double bytes) const;
  double ideal_allgather_s(double bytes) const;
  /// Returns the strategy's tasks for a volume of `bytes` in `chunks` chunks.
  MontaTimes times(MontaStrategy strategy, double bytes, int chunks) const;
  double seconds(MontaStrategy strategy, double bytes, int chunks) const;
};

/// Returns lines through Table 8's points: AlltoAll at 8 and 256, AllGather at 64 and 256 million bytes, copy at 64.
MontaPlatform table8_platform();

/// Returns I of a sequence: Table 8's 256 million bytes for 8 thousand tokens, in proportion.
double monta_bytes(int thousand_tokens);

/// Is the number of chunks of O2 and O3 in the paper's figures.
inline constexpr int kMontaChunks = 4;
inline constexpr std::array kMontaStrategies{MontaStrategy::o1, MontaStrategy::o2, MontaStrategy::o3};

}  // namespace moe::reproduce
