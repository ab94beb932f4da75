// MoNTA (Algorithms 1 and 2): chooses the best of O1, O2 and O3 and the number of chunks, with a lower limit on the
// size of a chunk.
#include <array>

#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {
namespace {

constexpr std::array kVariants{&kMontaO1, &kMontaO2, &kMontaO3};

}  // namespace

const Schedule kMonta{.name = "monta",
                      .summary = "the best of monta-o1, monta-o2 and monta-o3 and their number of chunks",
                      .lanes = LaneLayout::by_network_copy,
                      .degrees = DegreePolicy::shared,
                      .gradients = GradientPolicy::after,
                      .moe_part = nullptr,
                      .flow = Flow::dropped,
                      .variants = kVariants};

// MoNTA's baseline (Figure 4): every rank of a TP group sends all rows through the AlltoAll, in sequence.

namespace {

void tensor_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::allreduce);
  b.whole(TaskKind::combine);
}

}  // namespace

const Schedule kMontaBaseline{.name = "monta-baseline",
                              .summary = "every TP rank sends all rows, in sequence (MoNTA's baseline)",
                              .lanes = LaneLayout::by_network,
                              .degrees = DegreePolicy::one,
                              .gradients = GradientPolicy::after,
                              .moe_part = tensor_part,
                              .flow = Flow::tensor,
                              .in_sequence = true};

// MoNTA O1 (Figure 5, Eq. 11): before the AlltoAll, each TP rank drops all rows except its share, and an AllGather
// inside the node restores them. With one chunk, no re-layout copy is needed.

namespace {

void monta_o1_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::allgather);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::reducescatter);
  b.whole(TaskKind::combine);
  b.whole(TaskKind::gather);
}

}  // namespace

const Schedule kMontaO1{.name = "monta-o1",
                        .summary = "rows dropped to 1 / TP, AlltoAll, AllGather, in sequence (MoNTA O1)",
                        .lanes = LaneLayout::by_network,
                        .degrees = DegreePolicy::one,
                        .gradients = GradientPolicy::after,
                        .moe_part = monta_o1_part,
                        .flow = Flow::dropped,
                        .in_sequence = true};

// MoNTA O2 (Figure 7): N chunks. AllGather and re-layout copy of one chunk overlap with the AlltoAll of the next. One
// expert task waits for the last copy, and the same chain of chunks returns the partial sums.

void monta_chunks(LayerBuilder& b) {
  const auto chain = [&](TaskKind exchange, TaskKind gather, TaskKind copy) {
    for (int c = 0; c < b.degree(); ++c) {
      b.part(exchange, c, b.degree());
      b.part(gather, c, b.degree());
      // The rows of gathered chunks are interleaved.
      if (b.degree() > 1 && b.spans(GroupKind::mp)) b.part(copy, c, b.degree());
    }
  };
  chain(TaskKind::dispatch, TaskKind::allgather, TaskKind::copy);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::reducescatter);
  chain(TaskKind::combine, TaskKind::gather, TaskKind::home_copy);
}

const Schedule kMontaO2{
    .name = "monta-o2",
    .summary = "as monta-o1 in N chunks, AllGather and copy of one under the AlltoAll of the next (MoNTA O2)",
    .lanes = LaneLayout::by_network,
    .degrees = DegreePolicy::shared,
    .gradients = GradientPolicy::after,
    .moe_part = monta_chunks,
    .flow = Flow::dropped};

// MoNTA O3 (Figure 9): as O2, but the copies have their own stream, so a copy overlaps with the next AllGather.

const Schedule kMontaO3{.name = "monta-o3",
                        .summary = "as monta-o2, the copy on its own lane under the next AllGather (MoNTA O3)",
                        .lanes = LaneLayout::by_network_copy,
                        .degrees = DegreePolicy::shared,
                        .gradients = GradientPolicy::after,
                        .moe_part = monta_chunks,
                        .flow = Flow::dropped};

}  // namespace moe
