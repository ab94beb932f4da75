#pragma once
// MoNTA's strategies by the plans that run: the schedules monta-baseline, monta-o1 to -o3 and monta on the preset a800
// and layers of the model moe-2x70b.
#include <string_view>

#include "moe/search/degrees.h"
#include "reproduce/assume.h"
#include "reproduce/monta_model.h"

namespace moe::reproduce {

/// Returns the preset with what is assumed; without assumptions (null) nothing slows anything. Exchanges are priced by
/// what Table 8 prints alone; all other rows of the preset are assumed.
Profile monta_cluster(const Assumptions* assumed);

/// Returns "monta-o1" and the like.
std::string_view schedule_of(MontaStrategy strategy);

/// Holds what a training step takes of a layer, without the sums of gradients: seconds, and FLOPs of a rank.
struct MontaStep {
  double seconds = 0, exchange_s = 0, flops = 0;  // exchange_s: by which its four exchanges lengthen it
  double share() const { return exchange_s / seconds; }
};

/// Holds the bytes of a rank for the experts of the whole model with Adam, 16 P2 / (p t e) (MoNTA Table 3), and how
/// many layers that counts.
struct MontaExperts {
  double bytes = 0;
  int layers = 0;
};
MontaExperts monta_experts(const Profile& profile);

/// Times a layer with a sequence of so many thousand (1024) tokens.
class MontaLayer {
 public:
  MontaLayer(const Profile& profile, int thousand_tokens);
  MontaLayer(const Profile&&, int) = delete;  // it would not outlive the layer

  /// Returns I of equation 3, with its missing k, in bytes.
  double bytes() const;
  /// Returns one AlltoAll of the layer, as Figure 14 has it: dispatch, AllGather and copy, until the expert could
  /// begin. `chunks`: of O2 and O3.
  double exchange_s(MontaStrategy strategy, int chunks) const;
  MontaStep step(MontaStrategy strategy, int chunks) const;
  /// Returns what `monta` chooses, its number of chunks searched.
  Decision choice() const;

 private:
  Decision decision(MontaStrategy strategy, int chunks) const;
  LayerPricer pricer_;
};

/// Returns the strategy that takes least for one exchange, O2 and O3 with so many chunks.
MontaStrategy least_exchange(const MontaLayer& layer, int chunks);

}  // namespace moe::reproduce
