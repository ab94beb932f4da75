#include "moe/model/end_setup.h"

#include "moe/base/check.h"

namespace moe::model {

void require_trains(DType dtype) {
  require<BadInput>(dtype != DType::float16,
                    "dtype float16: gradients of models vanish without loss scaling, expected float32, float64 or "
                    "bfloat16");
}

EndSetup::EndSetup(LayerStack& stack, int64_t vocabulary, bool tied, const LayerSeed& seed)
    : stack_(stack),
      vocabulary_(vocabulary),
      tied_(tied),
      part_{stack.front().shape(), seed, stack.front().state().math()} {
  require_trains(rank().dtype());
  require<BadInput>(vocabulary >= mp(), "vocabulary: found {}, expected at least one token for each of {} MP ranks",
                    vocabulary, mp());
}

void EndSetup::clear(std::initializer_list<TensorView> gradients) const {
  for (const TensorView& all : gradients)
    if (all.data() != nullptr) math().memory().clear(all.data(), all.bytes(), nullptr);
}

void EndSetup::gather_rows(TensorView apart, TensorView all, CommCall call) const {
  mp_comm().allgather(apart.data(), all.data(), apart.bytes(), call);
}

void EndSetup::add_parts(TensorView parts, TensorView sum, CommCall call) const {
  if (shards_rows_over_mp())
    mp_comm().reducescatter(parts.data(), sum.data(), sum.elements(), sum.dtype(), call);
  else
    mp_comm().allreduce(sum.data(), sum.elements(), sum.dtype(), call);
}

Parameter EndSetup::table(std::string_view name, const Tensor& value, int64_t rows, int layer, int64_t from) const {
  const int64_t m = rank().model_dim();
  const ShardRange own = part_of(rows);
  const int64_t first = stack_.part_of(layer, false).first + from;
  return {std::string(name),
          {ShardRange{0, 1, 1}, own, {0, m, m}},
          value,
          stack_.dense_gradients().part(first, {own.count, m}),
          SummedOver::dp,
          1};
}

// The gradients are those of the gain, followed by those of the bias if there is one.
std::unique_ptr<RowNorm> EndSetup::norm(std::string_view gain, const Tensor& gradients) const {
  if (gradients.view().data() == nullptr) return nullptr;
  const int64_t m = rank().model_dim();
  part_.weights->lend(gradient_name(gain), gradients.view().part(0, {m}));
  if (gradients.view().elements() > m)
    part_.weights->lend(gradient_name(fmt::format("{}{}", gain, kNormBias)), gradients.view().part(m, {m}));
  return make_norm(part_, gain);
}

}  // namespace moe::model
