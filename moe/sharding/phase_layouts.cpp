#include "moe/sharding/phase_layouts.h"

#include <algorithm>

#include "moe/base/check.h"

namespace moe {
namespace {

int member_of(const ParallelShape& p, int ep, int esp) { return p.ep_inside ? esp * p.ep + ep : ep * p.esp + esp; }

// The cells of a layout, station by station, for every flow.
struct Stations {
  const RankShape& rank;
  int ep = rank.shape.parallel.ep, esp = rank.shape.parallel.esp, mp = rank.shape.parallel.mp;
  int64_t local = rank.experts.count, all = rank.experts.total;
  std::vector<RowLayout::Cell> cells = {};

  void add(int stream, int64_t first_expert, int piece) {
    for (int64_t e = 0; e < local; ++e) cells.push_back({stream, first_expert + e, piece});
  }
  RowLayout layout(int streams, int64_t experts, int degree, bool chunks_inside = false) {
    return RowLayout({rank.rows, rank.model_dim(), streams, experts, degree, chunks_inside, std::move(cells)});
  }

  RowLayout home(int degree) {
    for (int peer = 0; peer < ep; ++peer)
      for (int group = 0; group < rank.groups(); ++group)
        if (rank.traits().sends_all_groups() || group == rank.own_group) add(group, peer * local, peer);
    return layout(rank.groups(), all, degree);
  }
  RowLayout peer(int degree) {
    for (int q = 0; q < ep; ++q) add(q, 0, q);
    return layout(ep, local, degree);
  }
  // Returns the number of sources: a source is a rank of the EP (and ESP) group, or one of its groups of tokens.
  int sources() const { return rank.traits().sends_all_groups() ? ep * rank.groups() : ep * esp; }
  RowLayout gathered(int degree, bool chunks_inside = false, bool phases = false) {
    const int streams = sources();
    if (phases) {  // rows that go to one EP peer lie together
      for (int phase = 0; phase < ep; ++phase)
        for (int j = 0; j < esp; ++j)
          add(member_of(rank.shape.parallel, (rank.ep + phase) % ep, j), 0, phase * esp + j);
      return layout(streams, local, degree);
    }
    int a_piece = 1;  // number of sources in a piece; in the fused flow each rank has its own piece
    if (rank.traits().through_peer()) a_piece = ep;
    if (rank.traits().sends_all_groups()) a_piece = rank.groups();
    for (int source = 0; source < streams; ++source) add(source, 0, source / a_piece);
    return layout(streams, local, degree, chunks_inside);
  }
  RowLayout wide(int degree, bool phases) {
    const std::vector<int> peers = members(rank.shape.parallel, GroupKind::mp, rank.rank);
    for (int phase = 0; phase < (phases ? ep : 1); ++phase)
      for (int group = 0; group < mp; ++group)
        for (int peer = 0; peer < ep; ++peer) {
          const int at = index_in_group(rank.shape.parallel, GroupKind::ep, peers[group]);
          if (!phases || phase_of_peer(rank.shape.parallel, at, peer) == phase)
            add(group, peer * local, phase * mp + group);
        }
    return layout(mp, all, degree);
  }
};

// The member of the EP x ESP group that a source belongs to, and its number among that member's groups of tokens.
struct Origin {
  int member = 0, group = 0;
};

Origin origin_of(const RankShape& rank, int source) {
  const ParallelShape& p = rank.shape.parallel;
  const auto own_group = [&](int member) {
    if (rank.traits().gates == Tokens::own) return 0;
    const int first = rank.rank - member_of(p, rank.ep, rank.esp);
    return index_in_group(p, GroupKind::mp, first + member);
  };
  if (rank.traits().sends_all_groups()) {
    const int group = source % rank.groups();
    const int esp = rank.gates_esp_groups() ? group / p.mp : rank.esp;
    return {member_of(p, source / rank.groups(), esp), group % p.mp};
  }
  const int member = rank.traits().fused() ? source : member_of(p, source % p.ep, source / p.ep);
  return {member, own_group(member)};
}

// Returns the number of chunks that all of the phase's tasks of these kinds share; 0 if there is no such task.
int cut_of(const Plan& plan, Phase phase, std::initializer_list<TaskKind> kinds) {
  int chunks = 0;
  for (const Task& task : plan.tasks()) {
    if (task.phase != phase || std::ranges::find(kinds, task.kind) == kinds.end()) continue;
    require<Unsupported>(chunks == 0 || chunks == task.chunks,
                         "tasks in the same direction need the same number of chunks: found {} with {} after a task "
                         "with {}",
                         task.name(), task.chunks, chunks);
    chunks = task.chunks;
  }
  return chunks;
}

}  // namespace

ChunkCounts chunk_counts_of(const Plan& plan, Phase phase) {
  using enum TaskKind;
  ChunkCounts cuts;
  cuts.expert = cut_of(plan, phase, {expert, expert_dx, expert_dw});
  cuts.out = cut_of(plan, phase, {dispatch, allgather, copy});
  if (cuts.out == 0) cuts.out = cuts.expert;
  // Each of SAA's phases serves one EP peer. A proxy on fewer ranks than planned has more phases than peers; there the
  // phases are chunks of all rows.
  const int phases = cut_of(plan, phase, {exchange});
  cuts.phases = phases > 0 && phases == plan.shape.parallel.ep;
  cuts.back = cuts.phases ? 1 : std::max(phases, cut_of(plan, phase, {combine, sum, gather, home_copy}));
  cuts.lays_out = cut_of(plan, phase, {home_copy}) > 0;
  cuts.reduce = cut_of(plan, phase, {reducescatter, allreduce});
  if (cuts.back == 0) cuts.back = cuts.reduce == 0 ? cuts.expert : cuts.reduce;
  if (cuts.reduce == 0) cuts.reduce = cuts.back;
  require<Unsupported>(cuts.expert == 1 || cut_of(plan, phase, {copy}) == 0,
                       "{}: found re-layout copies before {} expert tasks, expected one", name_of(phase), cuts.expert);
  const bool alike = cuts.out == cuts.expert && cuts.expert == cuts.back && cuts.reduce == cuts.back;
  require<Unsupported>(cuts.expert == 1 || alike,
                       "{}: found {} chunks of rows to the experts, {} expert tasks and {} chunks back; expected one "
                       "expert task, or equally many of each",
                       name_of(phase), cuts.out, cuts.expert, cuts.back);
  require<Unsupported>(cuts.reduce == 1 || cuts.reduce == cuts.back,
                       "{}: found {} reductions of {} chunks, expected 1 or {}", name_of(phase), cuts.reduce, cuts.back,
                       cuts.back);
  return cuts;
}

PhaseLayouts::PhaseLayouts(const RankShape& rank, const ChunkCounts& cuts) {
  const auto stations = [&] { return Stations{rank}; };
  home = stations().home(cuts.out);
  home_back = stations().home(cuts.back);
  peer = stations().peer(cuts.out);
  peer_back = stations().peer(cuts.back);
  gathered = stations().gathered(cuts.out);
  gathered_back = stations().gathered(cuts.back, cuts.reduce < cuts.back, cuts.phases);
  if (rank.traits().gathers_rows()) {
    wide = stations().wide(cuts.back, cuts.phases);
    if (cuts.lays_out) laid_out = stations().wide(1, false);
  }
  source_counts_.resize(gathered.streams() * gathered.experts());
  peer_counts_.resize(peer.streams() * peer.experts());
}

void PhaseLayouts::place_tables_on(MemorySpace& memory, int64_t most) {
  for (RowLayout* layout : looked_up()) {
    const bool of_experts = layout == &gathered || layout == &gathered_back;
    if (layout->streams() > 0)
      layout->place_tables_on(memory, of_experts ? RowReader::experts : RowReader::order, most);
  }
}

void PhaseLayouts::set_counts(const RankShape& rank, const RowCounts& counts) {
  const int64_t all = rank.experts.total, local = rank.experts.count;
  const int held = rank.held_group_count();
  for (int source = 0; source < gathered.streams(); ++source) {
    const Origin origin = origin_of(rank, source);
    const auto from = counts.members.begin() + (origin.member * held + origin.group) * all + rank.experts.first;
    std::copy_n(from, local, source_counts_.begin() + source * local);
  }
  for (RowLayout* layout : {&home, &home_back, &wide, &laid_out})
    if (layout->streams() > 0) layout->set_counts(counts.gated);
  for (RowLayout* layout : {&gathered, &gathered_back}) layout->set_counts(source_counts_);
  if (!rank.traits().through_peer()) return;
  // The rows in `peer` are those that this ESP rank gathers from its own EP peers.
  std::copy_n(source_counts_.begin() + rank.esp * rank.shape.parallel.ep * local, peer_counts_.size(),
              peer_counts_.begin());
  for (RowLayout* layout : {&peer, &peer_back}) layout->set_counts(peer_counts_);
}

}  // namespace moe
