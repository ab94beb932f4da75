#include "moe/prices/row_finder.h"

#include <algorithm>
#include <fmt/format.h>

#include "moe/prices/modules.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

// Returns whether a row has the group's size but another number of ranks per node.
bool differs_in_spread(const CommRow& row, const Group& group) {
  return row.ranks == group.size && row.ranks_per_node > 0 && row.ranks_per_node != group.ranks_per_node;
}

// Returns " with N per node", or nothing if the ranks per node do not matter.
std::string text_of_spread(int ranks_per_node, bool matters) {
  return matters ? fmt::format(" with {} per node", ranks_per_node) : "";
}

}  // namespace

const CommRow* RowFinder::comm_row(Op op, const Group& group) const {
  const std::string_view algorithm = is_direct(op) ? "direct" : std::string_view(shape_.layer.dispatcher);
  const CommRow* found = nullptr;
  for (const CommRow& row : profile_.comm)
    if (row.op == op && row.network == group.network && row.ranks == group.size && row.algorithm == algorithm &&
        row.ranks_per_node <= group.ranks_per_node && (!found || row.ranks_per_node > found->ranks_per_node))
      found = &row;
  return found;
}

const CommRow* RowFinder::nearest_row(Op op, const Group& group) const {
  const CommRow* nearest = nullptr;
  const auto distance = [&](const CommRow& row) {
    const double ratio = 1.0 * std::max(row.ranks, group.size) / std::min(row.ranks, group.size);
    const int too_many = row.ranks_per_node - group.ranks_per_node;
    return std::tuple{ratio, -row.ranks, std::max(too_many, 0), -row.ranks_per_node};
  };
  for (const CommRow& row : profile_.comm)
    if (row.op == op && row.network == group.network && row.algorithm == "direct" &&
        (nearest == nullptr || distance(row) < distance(*nearest)))
      nearest = &row;
  return nearest;
}

std::string RowFinder::name_with_algorithm(Op op) const {
  return fmt::format("{}{}", name_of(op), is_direct(op) ? "" : " " + shape_.layer.dispatcher);
}

PriceNote RowFinder::borrowed_note(Op op, const Group& group, const CommRow& row) const {
  const bool spread = differs_in_spread(row, group);
  return {PriceNote::Kind::nearest,
          fmt::format("{} over {} ranks{}", name_with_algorithm(op), group.size,
                      text_of_spread(group.ranks_per_node, spread)),
          fmt::format(" priced by the row of {} ranks{}", row.ranks, text_of_spread(row.ranks_per_node, spread))};
}

void RowFinder::refuse(Op op, const Group& group) const {
  const CommRow* nearest = nearest_row(op, group);
  const CommRow missing{.op = op,
                        .network = group.network,
                        .ranks = group.size,
                        .algorithm = is_direct(op) ? "direct" : shape_.layer.dispatcher};
  const std::string ranks = options_.nearest && !nearest ? "any number of" : fmt::format("{}", group.size);
  const bool spread = nearest != nullptr && differs_in_spread(*nearest, group);
  const std::string none = fmt::format("no {} row for {} ranks{} on the {} network{}", name_with_algorithm(op), ranks,
                                       text_of_spread(group.ranks_per_node, spread), name_of(group.network),
                                       unusable_reason(profile_, row_name(missing)));
  if (nearest == nullptr) throw Unpriced(profile_.name, none);
  throw Unpriced(profile_.name,
                 fmt::format("{}; the nearest has {} ranks{}{}", none, nearest->ranks,
                             text_of_spread(nearest->ranks_per_node, spread),
                             options_.borrows.empty() ? "" : fmt::format(" ({} borrows it)", options_.borrows)));
}

PriceCurve RowFinder::curve_of(const CommRow& row, double bytes) const {
  if (const auto outside = range_note(row, bytes)) note(*outside);
  if (row.op == Op::alltoall)
    if (const auto fan_out = fan_out_note(row, shape_)) note(*fan_out);
  PriceCurve price = price_curve(note_origin(row));
  if (row.sent_share > 0) price.stretch(sent_share(row.network, shape_) / row.sent_share);
  return price;
}

ComputeRow RowFinder::gemm_row() const {
  const ComputeRow* other = nullptr;
  std::string others;
  for (const ComputeRow& row : profile_.compute) {
    if (row.op != Op::gemm) continue;
    if (row.dtype == shape_.layer.dtype) return note_origin(row);
    if (other == nullptr || bytes_of(row.dtype) == bytes_of(shape_.layer.dtype)) other = &row;
    others += fmt::format("{}{}", others.empty() ? "; it has " : ", ", name_of(row.dtype));
  }
  ComputeRow scaled{.op = Op::gemm, .dtype = shape_.layer.dtype};
  if (other != nullptr && !options_.scaled && !options_.borrows.empty())
    others += fmt::format(" ({} scales it)", options_.borrows);
  if (other == nullptr && unusable_reason(profile_, row_name(scaled)).empty() && !options_.lends.empty())
    others = fmt::format("; {}", options_.lends);
  if (other == nullptr || !options_.scaled)
    throw Unpriced(profile_.name, fmt::format("no gemm row for {}{}{}", name_of(scaled.dtype), others,
                                              unusable_reason(profile_, row_name(scaled))));
  const double width = static_cast<double>(bytes_of(scaled.dtype)) / static_cast<double>(bytes_of(other->dtype));
  scaled.alpha_s = note_origin(*other).alpha_s;
  scaled.beta_s_per_flop = width * other->beta_s_per_flop;
  note({PriceNote::Kind::scaled, "GEMMs, no modules, of " + std::string(name_of(scaled.dtype)),
        fmt::format(" from {}", name_of(other->dtype))});
  return scaled;
}

const ComputeRow* RowFinder::expert_row() const {
  const LayerShape& layer = shape_.layer;
  for (const ComputeRow& row : profile_.compute)
    if (row.op == Op::expert && row.ffn == layer.ffn && row.dtype == layer.dtype) return &note_origin(row);
  note_fp8();
  return nullptr;
}

void RowFinder::note_fp8() const {
  if (in_fp8(shape_.layer.ffn))
    note({PriceNote::Kind::derived, std::string(kFp8Experts),
          fmt::format(" = GEMMs of {}", name_of(shape_.layer.dtype))});
}

const ComputeRow* RowFinder::copy_row(Op op) const {
  for (const ComputeRow& row : profile_.compute)
    if (row.op == op) return &note_origin(row);
  return nullptr;
}

const ModuleRow* RowFinder::module_row(const std::string& name, Phase phase) const {
  bool profiled = false;
  for (const ModuleRow& row : profile_.modules) {
    if (row.name != name || row.phase != phase) continue;
    profiled = true;
    if (!row.seq || *row.seq == shape_.layer.seq) return &note_origin(row);
  }
  for (const std::optional<int64_t> seq : {std::optional<int64_t>(), std::optional(shape_.layer.seq)}) {
    const std::string missing = row_name(ModuleRow{name, phase, seq}), why = unusable_reason(profile_, missing);
    if (why.empty()) continue;
    note({is_priced_by_byte(name) ? PriceNote::Kind::not_priced : PriceNote::Kind::by_gemm, missing, why});
    return nullptr;
  }
  if (profiled) note({PriceNote::Kind::by_gemm, name, fmt::format(": no row for seq {}", shape_.layer.seq)});
  return nullptr;
}

const TaskRow* RowFinder::task_row(TaskKind kind, Phase phase) const {
  if (profile_.tasks.empty() || !has_terms(kind)) return nullptr;
  const auto row_of = [&](std::string_view name) -> const TaskRow* {
    for (const TaskRow& row : profile_.tasks)
      if (row.name == name && row.phase == phase && row.dtype == shape_.layer.dtype) return &note_origin(row);
    return nullptr;
  };
  if (const TaskRow* row = row_of(task_row_name(kind, shape_))) return row;
  if (kind == TaskKind::attention) return row_of(kAttentionModule);
  return kind == TaskKind::shared || kind == TaskKind::ffn ? task_row(TaskKind::expert, phase) : nullptr;
}

const ModuleRow* RowFinder::own_module_row(TaskKind kind, Phase phase) const {
  if (const ModuleRow* row = module_row(module_name(kind, shape_), phase)) return row;
  if (kind == TaskKind::i_order) return module_row(module_name(TaskKind::order, shape_), phase);
  return kind == TaskKind::attention ? module_row(std::string(kAttentionModule), phase) : nullptr;
}

namespace {

// A term gets a note below this factor of the measured range, or above the range divided by it.
constexpr double kRangeMargin = 0.8;

}  // namespace

std::string unusable_reason(const Profile& profile, const std::string& row) {
  for (const UnusableRow& unusable : profile.unusable)
    if (unusable.row == row) return fmt::format(": measured, but {}", unusable.reason);
  return {};
}

std::optional<PriceNote> range_note(const CommRow& row, double bytes) {
  const auto& range = row.range_bytes;
  if (!range || (bytes >= (*range)[0] && bytes <= (*range)[1])) return std::nullopt;
  return PriceNote{PriceNote::Kind::outside, std::string(name_of(row.op)),
                   fmt::format(" of {} (measured {} to {})", human_bytes(bytes), human_bytes((*range)[0]),
                               human_bytes((*range)[1]))};
}

std::optional<PriceNote> range_note(const ModuleRow& row, double size) {
  const auto& range = row.range;
  if (!range || (size >= (*range)[0] && size <= (*range)[1])) return std::nullopt;
  return PriceNote{PriceNote::Kind::outside, fmt::format("{} {}", row.name, name_of(row.phase)),
                   fmt::format(" of {:.3g} (measured {:.3g} to {:.3g})", size, (*range)[0], (*range)[1])};
}

PriceNotes range_notes(const TaskRow& row, const TermValues& task) {
  PriceNotes notes;
  for (size_t t = 0; t < kTerms; ++t)
    if (row.seconds_per_term[t] > 0 && (task[t] < kRangeMargin * row.min[t] || task[t] > row.max[t] / kRangeMargin))
      notes.insert({PriceNote::Kind::outside, row_name(row),
                    fmt::format(" with {:.3g} {}s (measured {:.3g} to {:.3g})", task[t], term_names()[t], row.min[t],
                                row.max[t])});
  return notes;
}

double sent_share(Network network, const LayerCase& shape) {
  if (shape.layer.experts == 0) return 1;
  const int64_t ranks = shape.parallel.ep;
  // On a single node, node_limit limits ranks instead of nodes.
  const bool limited = expert_nodes(shape.parallel) == 1;
  const double reached = network == Network::inter
                             ? nodes_reached(shape)
                             : places_reached(shape.layer.experts, ranks,
                                              limited ? places_allowed(shape.layer, ranks) : ranks, shape.layer.top_k);
  return reached / static_cast<double>(choices_of(shape));
}

std::optional<PriceNote> fan_out_note(const CommRow& row, const LayerCase& shape) {
  const int nodes = expert_nodes(shape.parallel);
  const LayerShape& layer = shape.layer;
  const int64_t allowed = places_allowed(layer, nodes), measured = row.node_limit;
  const auto said = [&](std::string detail) {
    return PriceNote{PriceNote::Kind::node_limit, row_name(row), std::move(detail)};
  };
  if (row.sent_share > 0) {
    if (layer.node_limit == 0 || layer.router_groups == 0 || layer.router_groups == nodes) return std::nullopt;
    return said(fmt::format(" is priced as if any experts on {} of {} nodes were chosen, not those of {} of {} groups",
                            allowed, nodes, layer.node_limit, layer.router_groups));
  }
  if (measured == 0 && allowed < nodes)
    return said(
        fmt::format(" may not send rows once per node, so its price does not include the limit of {} nodes", allowed));
  // Largest number of nodes that a token can reach.
  const int64_t most = std::min<int64_t>(choices_of(shape), allowed);
  if (measured == 0 || measured >= most) return std::nullopt;
  return said(fmt::format(
      " was measured with tokens that reach at most {} nodes, so the price is too low: these reach {:.1f} of {}",
      measured, nodes_reached(shape), nodes));
}

// Every derived price is a weighted sum of rows at the same volume. So a rule does not depend on the size, and applies
// to measured curves as well as to lines.
namespace {

struct Derivation {
  std::vector<std::pair<const CommRow*, double>> rows;  // each with its factor
  std::vector<PriceNote> notes;
};

struct Collective {
  Op op = Op::none;
  GroupKind kind = GroupKind::none;
};

// Returns the group whose row prices a collective. A send involves two ranks, whatever the size of its group.
Group group_of(const Groups& groups, const Collective& collective) {
  Group group = groups[collective.kind];
  if (collective.op == Op::sendrecv) group.size = 2, group.ranks_per_node = 1;
  return group;
}

// Returns a collective under the name of its row: an AlltoAll over EP and ESP has its own.
Collective named(Op op, GroupKind kind) { return {kind == GroupKind::ep_esp ? Op::a2a_ep_esp : op, kind}; }

// Returns the AlltoAll whose row can replace that of an AlltoAll over EP and ESP together: the one over EP if EP alone
// uses the same network as both together, else one over a group as large as both.
Collective plain_exchange(const Groups& groups) {
  const Group &ep = groups[GroupKind::ep], &both = groups[GroupKind::ep_esp];
  return {Op::alltoall, ep.network == both.network ? GroupKind::ep : GroupKind::ep_esp};
}

// Finds the row or the derivation rule for a collective. `borrows`: rows of the nearest group size are allowed.
class Derivations {
 public:
  Derivations(const RowFinder& find, const Groups& groups, bool borrows)
      : find_(find), groups_(groups), borrows_(borrows) {}

  std::optional<Derivation> price(const Collective& collective) const {
    if (group(collective).network == Network::none) return Derivation{};
    if (std::optional<Derivation> own = row_derivation(collective)) return own;
    switch (collective.op) {
      case Op::allreduce:
        return sum(collective.kind);
      case Op::allgather:
      case Op::reducescatter:
        return times(0.5, price({Op::allreduce, collective.kind}),
                     fmt::format("{} {}", network_name(collective), name_of(collective.op)),
                     "half an allreduce of the same volume");
      case Op::a2a_ep_esp:
        return times(1, price(plain_exchange(groups_)), "alltoall over EP and ESP",
                     fmt::format("the {} alltoall of the same volume",
                                 plain_exchange(groups_).kind == GroupKind::ep ? "EP" : "plain"));
      default:
        return std::nullopt;
    }
  }

 private:
  Group group(const Collective& c) const { return group_of(groups_, c); }
  std::string_view network_name(const Collective& c) const { return name_of(group(c).network); }

  std::optional<Derivation> row_derivation(const Collective& c) const {
    if (const CommRow* row = find_.comm_row(c.op, group(c))) return Derivation{{{row, 1}}, {}};
    const CommRow* nearest = borrows_ ? find_.nearest_row(c.op, group(c)) : nullptr;
    if (nearest == nullptr) return std::nullopt;
    return Derivation{{{nearest, 1}}, {find_.borrowed_note(c.op, group(c), *nearest)}};
  }

  std::optional<Derivation> sum(GroupKind kind) const {
    if (std::optional<Derivation> composed = composed_allreduce(kind)) return composed;
    const Collective scatter{Op::reducescatter, kind}, gather{Op::allgather, kind};
    return combined(row_derivation(scatter), row_derivation(gather), fmt::format("{} allreduce", network_name(scatter)),
                    "reducescatter + allgather of the same volume");
  }

  // Returns the price of an AllReduce that is composed of AllReduces, or messages, over other groups.
  std::optional<Derivation> composed_allreduce(GroupKind kind) const {
    const auto one_after_other = [&](GroupKind first, GroupKind second) {
      return combined(price({Op::allreduce, first}), price({Op::allreduce, second}),
                      fmt::format("allreduce over a {}", name_of(kind)),
                      fmt::format("over {}, then over {}", name_of(first), name_of(second)));
    };
    const Group &edp = groups_[GroupKind::edp], &dp = groups_[GroupKind::dp];
    switch (kind) {
      case GroupKind::stage:
        return one_after_other(GroupKind::mp, GroupKind::dp);
      case GroupKind::world:
        return one_after_other(GroupKind::stage, GroupKind::pp);
      case GroupKind::pp:
        return times(2.0 * (groups_[kind].size - 1), price({Op::sendrecv, kind}), "allreduce over pp",
                     "sendrecv from stage to stage and back");
      case GroupKind::edp:
        if (dp.network != edp.network || dp.size < edp.size) return std::nullopt;
        return times(1, price({Op::allreduce, GroupKind::dp}), "allreduce over edp",
                     "over dp, which has no fewer ranks");
      default:
        return std::nullopt;
    }
  }

  // Returns `derivation` multiplied by `factor`, with a note that `priced` is derived by `rule`.
  static std::optional<Derivation> times(double factor, std::optional<Derivation> derivation, std::string priced,
                                         const std::string& rule) {
    if (!derivation) return std::nullopt;
    for (auto& [row, count] : derivation->rows) count *= factor;
    derivation->notes.push_back({PriceNote::Kind::derived, std::move(priced), " = " + rule});
    return derivation;
  }

  static std::optional<Derivation> combined(std::optional<Derivation> first, const std::optional<Derivation>& second,
                                            std::string priced, const std::string& rule) {
    if (!first || !second) return std::nullopt;
    first->rows.insert(first->rows.end(), second->rows.begin(), second->rows.end());
    first->notes.insert(first->notes.end(), second->notes.begin(), second->notes.end());
    return times(1, std::move(first), std::move(priced), rule);
  }

  const RowFinder& find_;
  const Groups& groups_;
  bool borrows_;
};

}  // namespace

// Returns the curve of a send to the next rank of a CP group while all ranks send. An AllGather of all blocks takes as
// long as ranks - 1 such steps, which carry each block past all other ranks.
static std::optional<PriceCurve> ring_step(const RowFinder& find, const Groups& groups, double bytes) {
  const int ranks = groups[GroupKind::cp].size;
  std::optional<PriceCurve> gather = collective_curve(find, groups, Op::allgather, GroupKind::cp, ranks * bytes);
  if (!gather) return std::nullopt;
  gather->stretch(ranks);
  PriceCurve step;
  step.add(*gather, 1.0 / (ranks - 1));
  find.note({PriceNote::Kind::derived, "sendrecv over cp",
             fmt::format(" = an allgather of all {} blocks / {}", ranks, ranks - 1)});
  return step;
}

std::optional<PriceCurve> collective_curve(const RowFinder& find, const Groups& groups, Op op, GroupKind kind,
                                           double bytes) {
  const Collective collective = named(op, kind);
  std::optional<Derivation> found = Derivations(find, groups, false).price(collective);
  const bool is_ring = op == Op::sendrecv && kind == GroupKind::cp;
  if (!found && is_ring)
    if (std::optional<PriceCurve> step = ring_step(find, groups, bytes)) return step;
  if (!found && find.options().nearest) found = Derivations(find, groups, true).price(collective);
  if (!found) return std::nullopt;
  PriceCurve curve;
  for (const auto& [row, count] : found->rows) curve.add(find.curve_of(*row, bytes), count);
  for (PriceNote& note : found->notes) find.note(std::move(note));
  return curve;
}

void refuse_collective(const RowFinder& find, const Groups& groups, Op op, GroupKind kind) {
  const Collective collective = named(op, kind);
  const Collective missing = collective.op == Op::a2a_ep_esp ? plain_exchange(groups) : collective;
  find.refuse(missing.op, group_of(groups, missing));
}

}  // namespace moe
