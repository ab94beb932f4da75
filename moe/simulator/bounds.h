#pragma once
// Lower bounds on a layer's time under a schedule: one for all degrees and gradient splits, and one for each degree.
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
  std::string_view forward_term, backward_term;  // what binds: a lane, "gradients" or "contention"
  double total_s() const { return forward_s + backward_s; }
};

/// What a bound depends on beside prices: which kinds of tasks follow each other, and on which lanes. Layers of a
/// grid share it.
struct BoundShape {
  struct Link {
    TaskKind kind;
    int lane;
    bool by_degree;  // cut into as many parts as the degree says; else into `parts`
    int parts;
    bool takes_all_rows() const { return !by_degree && parts == 1; }
  };
  Phase phase = Phase::forward;
  std::vector<LaneKind> lanes;
  std::vector<Link> before, behind;  // the dense part: before the MoE part and behind it
  std::vector<Link> one, several;    // the MoE part's chain, of one chunk and of more
  std::vector<Link> weights;         // the half of the experts' backward that nothing of the chain waits for
  std::vector<Link> beside_sum;      // attention's likewise, which runs beside what follows the other half
  std::vector<Link> shared;          // the shared expert's, beside it
  int gradient_lane = -1;            // -1: no gradients are sent
  int transfer_lane = -1;            // that sends to the next stage; -1: there is none
};
BoundShape bound_shape(const Schedule& schedule, const LayerOutline& layer, Phase phase);

/// One pass of a layer, without gradients, as a replay reads it: which tasks follow each other on which lanes.
class PassTasks {
 public:
  explicit PassTasks(std::shared_ptr<const Structure> of);

  size_t lanes() const { return structure_->lanes.size(); }
  /// Returns the seconds of the pass's tasks.
  std::vector<double> seconds(const LayerPricer& pricer) const;
  /// Replays the pass and leaves in `ends` when each of its lanes ends, and at last its chain; they begin as `ends` has
  /// it.
  void replay(std::span<const double> seconds, std::vector<double>& ends) const;

 private:
  struct Row {
    uint32_t lane, first_dependency;
    bool begins;  // waits for the chain before, and for no task of the pass
  };
  std::shared_ptr<const Structure> structure_;
  std::vector<Row> rows_;  // by task; one more as end mark
  std::vector<uint32_t> dependencies_;
  size_t chain_end_ = 0;  // the task that the next pass waits for
};

/// Bound shapes and passes, each built when it is first asked for.
class BoundShapes {
 public:
  const BoundShape& get(const Schedule& schedule, const LayerOutline& layer, Phase phase);
  const PassTasks& pass(const Schedule& schedule, const LayerOutline& layer, Phase phase, int degree);

 private:
  std::map<std::pair<StructureKey, Phase>, BoundShape> known_;
  std::map<StructureKey, PassTasks> passes_;
};

/// At [a][b] the least time from the start of the first task on lane a to the end of the last on lane b, whatever
/// the degree; -infinity where none has to pass. The last index is the phase's chain of tasks as a whole.
using Crossings = std::vector<std::vector<double>>;

/// Returns the crossings of a pass exactly, as a replay without contention has them.
Crossings crossings_of(const PassTasks& pass, std::span<const double> seconds);

/// For which degrees a bound holds: one, or (`exact` 0) all from `least` on; and whether gradients are sent.
struct BoundedDegrees {
  int exact = 0, least = 1;
  bool gradients = true;
};

/// Bounds a phase's time from below: the dense part plus the MoE part's busiest lane (between tasks that take all rows
/// at once, of each stretch): its load, before it what leads to its first task, behind it what follows its last.
/// Gradients sent after everything add their time; others must fit on their lane. Where lanes slow each other, the
/// least time in which they get through their loads is a bound too (contended_work.h).
class PhaseBound {
 public:
  PhaseBound(const Schedule& schedule, const BoundShape& shape, const LayerPricer& pricer);

  struct Term {
    double seconds;
    std::string_view name;
  };
  /// Returns the bound whatever the degree: on alpha-beta rows each alpha is paid once, on measured curves each byte
  /// costs its least price.
  Term degree_free() const;
  /// Returns the bound of this degree, from its chunks' own lengths.
  Term at(int degree) const;
  /// Returns the seconds that this degree and every larger one take at least.
  double from(int degree) const;
  /// Returns the seconds that a phase of this degree or a larger one takes at least, without gradients.
  double pass_from(int degree) const;
  /// Returns the lane that gradients are sent on; -1: none are.
  int gradient_lane() const { return shape_.gradient_lane; }
  /// Returns the seconds of a lane without gradients.
  double busy(int lane, BoundedDegrees degrees = {}) const;
  /// Returns what leads to a lane's first task in a forward, or follows its last one in a backward; infinity if it has
  /// none.
  double outside(int lane, BoundedDegrees degrees) const;
  /// Returns the crossings of the phase without gradients, at one degree or whatever the degree from `least` on.
  Crossings crossings(BoundedDegrees degrees = {}) const;

 private:
  struct Load {
    double all, least;  // of all parts, and of the shortest
  };
  Load load(const BoundShape::Link& link, BoundedDegrees degrees) const;
  const std::vector<BoundShape::Link>& moe_chain(BoundedDegrees degrees) const {
    return std::max(degrees.exact, degrees.least) == 1 ? shape_.one : shape_.several;
  }
  double dense(const BoundShape::Link& link) const;
  double dense_on(int lane) const;
  /// What a lane runs of a chain: its load, what leads to its first task, what follows its last.
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
  double dense_ = 0, gradients_ = 0, beside_gradients_ = 0;
  double shared_ = 0;  // the shared expert's chain
  /// These hold, by lane, until when after the MoE part's begin the shared expert's first tasks run, and how long its
  /// last ones take.
  std::vector<double> shared_lead_, shared_tail_;
};

/// Returns the lesser of two bounds, each phase by itself.
Bound lesser_phases(const Bound& one, const Bound& other);

/// Returns the seconds that no degrees and no gradient split of the schedule beat, nor any schedule among which it
/// chooses. The backward begins with the forward where it is recomputed.
Bound degree_free_bound(const Schedule& schedule, const LayerPricer& pricer);

}  // namespace moe
