#include "moe/layer/moe_layer.h"

#include "moe/plan/volumes.h"

namespace moe {

MoeLayer::MoeLayer(const Case& shape, int rank, const LayerSeed& seed, LayerComms comms)
    : shape_(rank_shape(shape, rank)),
      seed_(seed),
      comms_(std::move(comms)),
      buffers_(shape_),
      routing_({shape_.tokens.count, shape.layer.top_k, shape.layer.experts, shape_.rows}, shape.layer.dtype),
      attention_(make_attention({shape_, seed})),
      gate_(make_gate(shape.layer.gate, {shape_, seed})),
      order_(make_order(shape.layer.order, shape.layer.dtype)),
      dispatcher_(make_dispatcher(shape.layer.dispatcher, comms_.of(GroupKind::ep))),
      expert_(make_expert(name_of(shape.layer.ffn), {shape_, seed})) {
  const int64_t dense = gradient_bytes(shape) / bytes_of(shape.layer.dtype);
  fresh_ = Tensor({dense}, shape.layer.dtype);
  pending_ = Tensor({dense}, shape.layer.dtype);
  fill_input(input(), shape_.tokens, seed_);
  fill_output_gradient(output_gradient(), shape_.tokens, seed_);
}

std::vector<Parameter> MoeLayer::parameters() {
  std::vector<Parameter> all = attention_->parameters(pending_);
  for (auto&& some : {gate_->parameters(), expert_->parameters()}) all.insert(all.end(), some.begin(), some.end());
  return all;
}

void MoeLayer::finish_gradients(Stream& stream) {
  for (const Parameter& p : parameters()) {
    if (p.summed_over == SummedOver::dp) continue;
    const bool stage = p.summed_over == SummedOver::stage;
    Communicator& comm = comms_.of(stage ? GroupKind::none : GroupKind::edp);
    const std::string_view name = stage ? "gate's gradients over the stage" : "experts' gradients over EDP";
    if (comm.size() > 1)
      comm.allreduce(p.gradient.data(), p.gradient.elements(), p.gradient.dtype(), {stream, {}, name});
  }
}

}  // namespace moe
