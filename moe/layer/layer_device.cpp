#include "moe/layer/layer_device.h"

#include "moe/shape/layer_fields.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

class CpuLayerDevice final : public LayerDevice {
 public:
  Math& math() override { return cpu_math(); }
  void place(RowLayout&) override {}
  void unpack(const RowLayout& layout, Rows rows, TensorView data, TensorView experts,
              std::span<const Rows> to) override {
    unpack_rows(layout, rows, data, experts, to);
  }
  void pack(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from,
            TensorView data) override {
    pack_rows(layout, rows, experts, from, data);
  }
  void require_runs(const LayerShape& layer) const override {
    with_element(layer.dtype, [](auto) {});
  }
  std::unique_ptr<Gate> make_gate(const PartSetup& setup) override {
    return find_gate(setup.rank.shape.layer.gate).make(setup);
  }
  std::unique_ptr<Order> make_order(const RankShape& rank) override {
    return moe::make_order(rank.shape.layer.order, rank.dtype());
  }
};

}  // namespace

LayerDevice& cpu_layer_device() {
  static CpuLayerDevice device;
  return device;
}

void require_runnable_fields(const LayerShape& layer) {
  for_each_layer_field([&](const auto& field) {
    require<Unsupported>(!field.planned_only || layer.*field.member == LayerShape{}.*field.member,
                         "{}: found a value, expected none: only plans and emulated clusters support it", field.key);
  });
}

void clear_planned_only_fields(LayerShape& layer) {
  for_each_layer_field([&](const auto& field) {
    if (field.planned_only) layer.*field.member = LayerShape{}.*field.member;
  });
}

bool stores_attention_scores(DeviceKind kind, AttentionBy by) {
  return kind != DeviceKind::cpu && by == AttentionBy::own;
}

bool supports_dtype(DeviceKind kind, DType dtype) {
  return kind == DeviceKind::cuda || dtype == accumulation_type(dtype);
}

}  // namespace moe
