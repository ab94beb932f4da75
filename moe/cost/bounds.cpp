#include "moe/cost/bounds.h"

#include <algorithm>

namespace moe {
namespace {

struct Term {
  double seconds;
  std::string_view name;
};

bool larger(const Term& a, const Term& b) { return a.seconds < b.seconds; }

class PhaseBound {
 public:
  PhaseBound(const Schedule& schedule, const LayerPricer& pricer, Phase phase)
      : schedule_(schedule), pricer_(pricer), phase_(phase) {
    const double rows = pricer.shape().rounding == Rounding::exact ? capacity_exact(pricer.shape())
                                                                   : static_cast<double>(pricer.rows());
    a2a_ = {full(TaskKind::dispatch, GroupKind::ep, rows), full(TaskKind::dispatch, GroupKind::ep, 0)};
    gather_ = {full(TaskKind::allgather, GroupKind::esp, rows), full(TaskKind::allgather, GroupKind::esp, 0)};
    scatter_ = {full(TaskKind::reducescatter, GroupKind::esp, rows), full(TaskKind::reducescatter, GroupKind::esp, 0)};
    expert_ = full(TaskKind::expert, GroupKind::none, rows);
    for (const TaskKind kind : {TaskKind::attention, TaskKind::gate, TaskKind::order, TaskKind::i_order})
      dense_ += pricer.dense_seconds(kind, phase);
    if (network(GroupKind::mp) != Network::none)
      mp_ =
          pricer.dense_seconds(TaskKind::mp_allgather, phase) + pricer.dense_seconds(TaskKind::mp_reducescatter, phase);
    dense_ += mp_;
  }

  Term moe() const {
    const Term compute{2 * a2a_.alpha + gather_.alpha + scatter_.alpha + expert_, "compute"};
    const double intra = gather_.all + scatter_.all, inter = 2 * a2a_.all;
    if (schedule_.lanes == LaneLayout::one_comm || network(GroupKind::ep) == network(GroupKind::esp))
      return std::max(compute, Term{inter + intra, "communication"}, larger);
    return std::max({compute, Term{inter, name_of(network(GroupKind::ep))},
                     Term{2 * a2a_.alpha + intra, name_of(network(GroupKind::esp))}},
                    larger);
  }

  Term total() const {
    const Term part = moe();
    Term whole{dense_ + part.seconds, part.name};
    if (phase_ == Phase::forward || network(GroupKind::dp) == Network::none) return whole;
    const double gradients = pricer_.gradient_seconds(pricer_.gradient_bytes());
    if (schedule_.gradients == GradientPolicy::after) return {whole.seconds + gradients, whole.name};
    return std::max(whole, Term{gradients + beside_gradients(), "gradients"}, larger);
  }

 private:
  struct Load {
    double all = 0, alpha = 0;
  };
  Network network(GroupKind kind) const { return pricer_.groups()[static_cast<size_t>(kind)].network; }
  double full(TaskKind kind, GroupKind group, double rows) const {
    if (group != GroupKind::none && network(group) == Network::none) return 0;
    return pricer_.chunk_seconds(kind, phase_, rows);
  }
  // What else runs on the gradients' lane.
  double beside_gradients() const {
    const auto shares = [&](GroupKind kind) {
      return schedule_.lanes == LaneLayout::one_comm || network(kind) == network(GroupKind::dp);
    };
    return (shares(GroupKind::ep) ? 2 * a2a_.all : 0) + (shares(GroupKind::esp) ? gather_.all + scatter_.all : 0) +
           (shares(GroupKind::mp) ? mp_ : 0);
  }

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  Phase phase_;
  Load a2a_, gather_, scatter_;
  double expert_ = 0, dense_ = 0, mp_ = 0;
};

}  // namespace

Bound degree_free_bound(const Schedule& schedule, const LayerPricer& pricer) {
  const Term forward = PhaseBound(schedule, pricer, Phase::forward).total();
  const Term backward = PhaseBound(schedule, pricer, Phase::backward).total();
  return {forward.seconds, backward.seconds, std::string(forward.name), std::string(backward.name)};
}

}  // namespace moe
