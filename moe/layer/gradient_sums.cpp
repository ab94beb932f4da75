#include "moe/layer/gradient_sums.h"

#include "moe/sharding/layer_buffers.h"

namespace moe {

void sum_gradient(const Parameter& p, Communicator& comm, bool sums, Math& math, CommCall call) {
  if (sums && comm.size() > 1) comm.allreduce(p.gradient.data(), p.gradient.elements(), p.gradient.dtype(), call);
  if (p.copies == 1) return;
  call.stream.launch([&math, gradient = p.gradient, by = p.copies](void* native) {
    math.use(native);
    math.scale(gradient, 1.0 / by);
  });
}

namespace {

// A run of elements of a weight, and its place in the sent data.
struct Piece {
  TensorView weight, sent;
};

// Returns the pieces of every rank's block, rank by rank, a weight after the other.
std::vector<std::vector<Piece>> pieces_of(std::span<const Parameter> weights, TensorView scratch, int ranks) {
  std::vector<std::vector<Piece>> blocks(ranks);
  int64_t at = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (const Parameter& p : weights) {
      const ElementSelection own = weight_share(p.axes, rank, ranks).elements;
      for (int64_t plane = 0; plane < p.axes[0].count; ++plane, at += own.count)
        blocks[rank].push_back(
            {p.value.part(plane * own.every + own.first, {own.count}), scratch.part(at, {own.count})});
    }
  return blocks;
}

}  // namespace

int64_t elements_of(std::span<const Parameter> weights) {
  int64_t elements = 0;
  for (const Parameter& p : weights) elements += p.value.elements();
  return elements;
}

void gather_weights(std::span<const Parameter> weights, TensorView scratch, Communicator& comm, Math& math,
                    CommCall call) {
  if (elements_of(weights) == 0) return;
  if (comm.size() == 1) weights = weights.first(1);  // nobody has another share
  const bool in_place = weights.size() == 1 && (comm.size() == 1 || weights.front().axes[0].count == 1);
  const TensorView all = in_place ? weights.front().value.flat() : scratch;
  const auto own = static_cast<size_t>(comm.rank());
  auto blocks = pieces_of(weights, all, comm.size());
  std::vector<int64_t> bytes;
  for (const auto& block : blocks) {
    bytes.push_back(0);
    for (const Piece& piece : block) bytes.back() += piece.sent.bytes();
  }
  if (in_place) return comm.allgatherv(blocks[own].front().sent.data(), all.data(), std::move(bytes), call);
  const void* sent = blocks[own].front().sent.data();
  call.stream.launch([&math, block = blocks[own]](void* native) {
    math.use(native);
    for (const Piece& piece : block) math.assign(piece.weight, piece.sent);
  });
  comm.allgatherv(sent, all.data(), std::move(bytes), call);
  blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(own));
  call.stream.launch([&math, others = std::move(blocks)](void* native) {
    math.use(native);
    for (const auto& block : others)
      for (const Piece& piece : block) math.assign(piece.sent, piece.weight);
  });
}

}  // namespace moe
