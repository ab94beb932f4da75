#pragma once
// Lower bounds on a layer's seconds under a schedule, for all degrees and gradient splits or for one degree.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/schedule/schedule.h"

namespace moe {

struct Bound {
  double forward_s = 0, backward_s = 0;
  std::string_view forward_term, backward_term;  // the binding limit: a lane, "gradients" or "contention"
  double total_s() const { return forward_s + backward_s; }
};

/// The inputs of a bound except prices: the chains of task kinds and their lanes. Layers of a grid share it.
struct BoundShape {
  struct Link {
    TaskKind kind;
    int lane;
    bool by_degree;  // cut into as many parts as the degree; else into `parts`
    int parts;
    bool takes_all_rows() const { return !by_degree && parts == 1; }
  };
  Phase phase = Phase::forward;
  std::vector<LaneKind> lanes;
  std::vector<Link> before, behind;  // the dense part, before and after the MoE part
  std::vector<Link> one, several;    // the MoE part's chain, with one chunk and with several
  std::vector<Link> weights;         // the half of the experts' backward that the chain does not wait for
  std::vector<Link> beside_sum;      // attention_dw, which overlaps with the tasks after attention_dx
  std::vector<Link> shared;          // the shared expert's chain, parallel to the MoE part's
  /// A task of attention's ring. The whole ring is one link of the dense part, of kind `heads`.
  struct RingTask {
    TaskKind kind;
    int lane;
    std::vector<size_t> after;  // earlier tasks of the ring
  };
  std::vector<RingTask> ring;
  int gradient_lane = -1;  // -1: no gradients are sent
  int transfer_lane = -1;  // lane that sends to the next stage; -1: none
};
BoundShape bound_shape(const Schedule& schedule, const LayerOutline& layer, Phase phase);

/// One pass of a layer, without gradients, compiled for replay.
class PassTasks {
 public:
  explicit PassTasks(std::shared_ptr<const Structure> of);

  size_t lanes() const { return structure_->lanes.size(); }
  /// Returns the seconds of each task of the pass.
  std::vector<double> seconds(const LayerPricer& pricer) const;
  /// Replays the pass. `ends` has one element per lane and, last, one for the chain: on entry the time at which it is
  /// free, on return the time at which it ends.
  void replay(std::span<const double> seconds, std::vector<double>& ends) const;

 private:
  struct Row {
    uint32_t lane, first_dependency;
    bool begins;  // waits for the chain of the previous pass
  };
  std::shared_ptr<const Structure> structure_;
  std::vector<Row> rows_;  // for each task, followed by an end mark
  std::vector<uint32_t> dependencies_;
  size_t chain_end_ = 0;  // the task that the next pass waits for
};

/// Bound shapes and passes, each built on its first use.
class BoundShapes {
 public:
  const BoundShape& get(const Schedule& schedule, const LayerOutline& layer, Phase phase);
  const PassTasks& pass(const Schedule& schedule, const LayerOutline& layer, Phase phase, int degree);

 private:
  std::map<std::pair<StructureKey, Phase>, BoundShape> known_;
  std::map<StructureKey, PassTasks> passes_;
};

/// crossings[a][b]: lower bound on the seconds from the start of the first task on lane a to the end of the last task
/// on lane b; -infinity if no order connects them. The last index stands for the chain of the whole phase instead of a
/// lane.
using Crossings = std::vector<std::vector<double>>;

/// Returns the exact crossings of a pass without contention, by replays.
Crossings crossings_of(const PassTasks& pass, std::span<const double> seconds);

/// The degrees for which a bound holds: `exact` or, if that is 0, all from `least` on. `gradients`: whether gradients
/// are included.
struct BoundedDegrees {
  int exact = 0, min = 1;
  bool gradients = true;
};

/// Lower bounds on a phase's seconds: the dense part, plus the bound of the MoE part's busiest lane: its load and the
/// least time before its first task and after its last one. Tasks that take all rows divide the MoE part into
/// stretches, whose bounds are added. Gradients sent after everything add their time; others are part of their lane's
/// load. Under contention, the least time to complete all loads is a bound too (contended_work.h).
class PhaseBound {
 public:
  PhaseBound(const Schedule& schedule, const BoundShape& shape, const LayerPricer& pricer);

  struct Term {
    double seconds;
    std::string_view name;
  };
  /// Returns the bound for all degrees: each alpha counts once with alpha-beta rows, and each byte with its smallest
  /// price on measured curves.
  Term degree_free() const;
  /// Returns the bound for one degree, from the seconds of its chunks.
  Term at(int degree) const;
  /// Returns the bound for `degree` and every larger degree.
  double from(int degree) const;
  /// Returns the same bound without gradients.
  double pass_from(int degree) const;
  /// Returns the lane that sends gradients; -1 if no gradients are sent.
  int gradient_lane() const { return shape_.gradient_lane; }
  /// Returns the seconds of a lane's tasks without gradients.
  double busy(int lane, BoundedDegrees degrees = {}) const;
  /// Returns a lower bound on the seconds before a lane's first task in a forward, or after its last task in a
  /// backward; infinity if the lane has no task.
  double outside(int lane, BoundedDegrees degrees) const;
  /// Returns the crossings of the phase without gradients, for one degree or for all degrees from `least` on.
  Crossings crossings(BoundedDegrees degrees = {}) const;

 private:
  struct Load {
    double all, min;  // seconds of all parts, and of the shortest
  };
  Load load(const BoundShape::Link& link, BoundedDegrees degrees) const;
  const std::vector<BoundShape::Link>& moe_chain(BoundedDegrees degrees) const {
    return std::max(degrees.exact, degrees.min) == 1 ? shape_.one : shape_.several;
  }
  double dense(const BoundShape::Link& link) const;
  bool is_on(const BoundShape::Link& link, int lane) const;
  double busy_on(const BoundShape::Link& link, int lane) const;
  double ring_busy(int lane) const;
  double ring_seconds() const;
  bool is_ring(const BoundShape::Link& link) const { return link.kind == TaskKind::heads; }
  double dense_on(int lane) const;
  /// The seconds of a lane in a chain: its load, and lower bounds on the time before its first and after its last task.
  struct LaneLoad {
    double before = 0, busy = 0, behind = 0;
  };
  static LaneLoad lane_load(std::span<const BoundShape::Link> links, std::span<const Load> loads, size_t lane);
  void follow_shared();
  Term with_all_beside(const Term& alone, std::span<const BoundShape::Link> chain, std::span<const Load> loads,
                       BoundedDegrees degrees) const;
  Term beside_shared(const Term& alone, std::span<const BoundShape::Link> chain, std::span<const Load> loads) const;
  Term segment(std::span<const BoundShape::Link> links, std::span<const Load> loads) const;
  Term moe_part(std::span<const BoundShape::Link> chain, std::span<const Load> loads) const;
  Term bound(BoundedDegrees degrees) const;
  double contended(std::span<const BoundShape::Link> chain, std::span<const Load> loads, BoundedDegrees degrees) const;

  const Schedule& schedule_;
  const BoundShape& shape_;
  const LayerPricer& pricer_;
  double ring_s_ = 0;  // least seconds of attention's ring
  double dense_ = 0, gradients_ = 0, beside_gradients_ = 0;
  double shared_ = 0;  // seconds of the shared expert's chain
  /// For each lane: seconds from the start of the MoE part to the end of the shared expert's first tasks; seconds of
  /// its last tasks.
  std::vector<double> shared_lead_, shared_tail_;
};

/// Returns the smaller of two bounds for each phase.
Bound min_phases(const Bound& one, const Bound& other);

/// Returns a lower bound for all degrees and gradient splits of the schedule or, if it chooses among variants, of all
/// variants. The backward includes a recomputed forward.
Bound degree_free_bound(const Schedule& schedule, const LayerPricer& pricer);

}  // namespace moe
