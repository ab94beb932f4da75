// Every derived price is a weighted sum of rows at one volume. So a rule needs no sizes, and what it makes of measured
// curves is a curve.
#include "moe/cost/collective_prices.h"

namespace moe::cost {
namespace {

struct Derivation {
  std::vector<std::pair<const CommRow*, double>> rows;  // and how often each is taken
  std::vector<std::string> notes;
};

struct Collective {
  Op op = Op::none;
  GroupKind kind = GroupKind::none;
};

// A send has two ranks, however many its group has.
Group group_of(const Groups& groups, const Collective& collective) {
  Group group = groups[static_cast<size_t>(collective.kind)];
  if (collective.op == Op::sendrecv) group.size = 2;
  return group;
}

// A layer asks for an AlltoAll over EP and ESP; its row has a name of its own.
Collective named(Op op, GroupKind kind) { return {kind == GroupKind::ep_esp ? Op::a2a_ep_esp : op, kind}; }

// Returns what an AlltoAll over EP and ESP is priced as: that over EP if EP is on the network that both are on (it has
// several ranks, and ESP reaches no farther), else that over both.
Collective plain_exchange(const Groups& groups) {
  const Group &ep = groups[static_cast<size_t>(GroupKind::ep)], &both = groups[static_cast<size_t>(GroupKind::ep_esp)];
  return {Op::alltoall, ep.network == both.network ? GroupKind::ep : GroupKind::ep_esp};
}

// Finds rows and rules; `borrows`: also rows of the nearest group size.
class Derivations {
 public:
  Derivations(const RowFinder& find, const Groups& groups, bool borrows)
      : find_(find), groups_(groups), borrows_(borrows) {}

  std::optional<Derivation> price(const Collective& collective) const {
    if (group(collective).network == Network::none) return Derivation{};
    if (std::optional<Derivation> own = by_row(collective)) return own;
    switch (collective.op) {
      case Op::allreduce:
        return sum(collective.kind);
      case Op::allgather:
      case Op::reducescatter:
        return times(0.5, price({Op::allreduce, collective.kind}),
                     fmt::format("{} {} = half an allreduce of the same volume", network_name(collective),
                                 name_of(collective.op)));
      case Op::a2a_ep_esp:
        return times(1, price(plain_exchange(groups_)),
                     fmt::format("alltoall over EP and ESP = the {} alltoall of the same volume",
                                 plain_exchange(groups_).kind == GroupKind::ep ? "EP" : "plain"));
      default:
        return std::nullopt;
    }
  }

 private:
  Group group(const Collective& c) const { return group_of(groups_, c); }
  std::string_view network_name(const Collective& c) const { return name_of(group(c).network); }

  std::optional<Derivation> by_row(const Collective& c) const {
    if (const CommRow* row = find_.comm_row(c.op, group(c))) return Derivation{{{row, 1}}, {}};
    const CommRow* nearest = borrows_ ? find_.nearest_row(c.op, group(c)) : nullptr;
    if (nearest == nullptr) return std::nullopt;
    return Derivation{{{nearest, 1}}, {find_.borrowed_note(c.op, group(c), *nearest)}};
  }

  std::optional<Derivation> sum(GroupKind kind) const {
    if (std::optional<Derivation> others = sum_over_other_groups(kind)) return others;
    const Collective scatter{Op::reducescatter, kind}, gather{Op::allgather, kind};
    return both(by_row(scatter), by_row(gather),
                fmt::format("{} allreduce = reducescatter + allgather of the same volume", network_name(scatter)));
  }

  std::optional<Derivation> sum_over_other_groups(GroupKind kind) const {
    const auto one_after_other = [&](GroupKind first, GroupKind second) {
      return both(
          price({Op::allreduce, first}), price({Op::allreduce, second}),
          fmt::format("allreduce over a {} = over {}, then over {}", name_of(kind), name_of(first), name_of(second)));
    };
    const Group &edp = groups_[static_cast<size_t>(GroupKind::edp)], &dp = groups_[static_cast<size_t>(GroupKind::dp)];
    switch (kind) {
      case GroupKind::stage:
        return one_after_other(GroupKind::mp, GroupKind::dp);
      case GroupKind::world:
        return one_after_other(GroupKind::stage, GroupKind::pp);
      case GroupKind::pp:
        return times(2.0 * (groups_[static_cast<size_t>(kind)].size - 1), price({Op::sendrecv, kind}),
                     "allreduce over pp = sendrecv from stage to stage and back");
      case GroupKind::edp:
        if (dp.network != edp.network || dp.size < edp.size) return std::nullopt;
        return times(1, price({Op::allreduce, GroupKind::dp}),
                     "allreduce over edp = over dp, which has no fewer ranks");
      default:
        return std::nullopt;
    }
  }

  static std::optional<Derivation> times(double factor, std::optional<Derivation> derivation, const std::string& rule) {
    if (!derivation) return std::nullopt;
    for (auto& [row, count] : derivation->rows) count *= factor;
    derivation->notes.push_back("derived: " + rule);
    return derivation;
  }

  static std::optional<Derivation> both(std::optional<Derivation> first, const std::optional<Derivation>& second,
                                        const std::string& rule) {
    if (!first || !second) return std::nullopt;
    first->rows.insert(first->rows.end(), second->rows.begin(), second->rows.end());
    first->notes.insert(first->notes.end(), second->notes.begin(), second->notes.end());
    return times(1, std::move(first), rule);
  }

  const RowFinder& find_;
  const Groups& groups_;
  bool borrows_;
};

}  // namespace

std::optional<PriceCurve> collective_curve(const RowFinder& find, const Groups& groups, Op op, GroupKind kind,
                                           double bytes) {
  const Collective collective = named(op, kind);
  std::optional<Derivation> found = Derivations(find, groups, false).price(collective);
  if (!found && find.options().nearest) found = Derivations(find, groups, true).price(collective);
  if (!found) return std::nullopt;
  PriceCurve curve;
  for (const auto& [row, count] : found->rows) curve.add(find.curve_of(*row, bytes), count);
  for (std::string& note : found->notes) find.note(std::move(note));
  return curve;
}

void refuse_collective(const RowFinder& find, const Groups& groups, Op op, GroupKind kind) {
  const Collective asked = named(op, kind);
  const Collective missing = asked.op == Op::a2a_ep_esp ? plain_exchange(groups) : asked;
  find.refuse(missing.op, group_of(groups, missing));
}

}  // namespace moe::cost
