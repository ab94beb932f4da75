#include "moe/layer/cuda/layer_device.h"

#include "moe/layer/cuda/kernels.h"

namespace moe::cuda {
namespace {

// Returns whether experts have equally many rows, at equal distances.
bool are_evenly_spaced(std::span<const Rows> experts) {
  for (size_t e = 1; e < experts.size(); ++e)
    if (experts[e].count() != experts[0].count() ||
        experts[e].begin - experts[e - 1].begin != experts[1].begin - experts[0].begin)
      return false;
  return true;
}

// Calls body(block) for the experts that one launch serves: all of them if they are alike.
template <class Body>
void for_each_block(const RowLayout& layout, Rows rows, std::span<const Rows> experts, Body body) {
  std::vector<Rows> from(experts.size());
  ExpertRows(layout).chunk_rows(layout, rows, from);
  const auto step = [](std::span<const Rows> of) { return of.size() > 1 ? of[1].begin - of[0].begin : 0; };
  if (are_evenly_spaced(experts) && are_evenly_spaced(from))
    return body(ExpertBlock{static_cast<int64_t>(experts.size()), experts[0].count(), from[0].begin, step(from),
                            experts[0].begin, step(experts)});
  for (size_t e = 0; e < experts.size(); ++e)
    body(ExpertBlock{1, experts[e].count(), from[e].begin, 0, experts[e].begin, 0});
}

PlacedRows placed(const RowLayout& layout, TensorView data) {
  const auto& places = layout.on_device();
  require<WrongResult>(places != nullptr && places->reader == RowReader::experts,
                       "the row layout was not copied to the device for the experts");
  return {data.data(), places->places.data()};
}

class CudaLayerDevice final : public LayerDevice {
 public:
  CudaLayerDevice(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm, std::optional<int> torch_gpu)
      : math_(std::move(memory), std::move(gemm), torch_gpu) {}
  Math& math() override { return math_; }

  void place(RowLayout& layout) override {
    RowPlaces& on = *layout.on_device();
    on.send_table(layout, math_.memory());
    find_places(math_.stream(), {layout.rows(), layout.streams(), layout.experts(), layout.degree(), on.max,
                                 on.reader == RowReader::experts, on.table.data(), on.places.data()});
  }
  void unpack(const RowLayout& layout, Rows rows, TensorView data, TensorView experts,
              std::span<const Rows> to) override {
    for_each_block(layout, rows, to, [&](const ExpertBlock& block) {
      cuda::unpack_rows({math_.stream(), data.dtype()}, block, placed(layout, data), experts.data(), experts.size(1));
    });
  }
  void pack(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from,
            TensorView data) override {
    for_each_block(layout, rows, from, [&](const ExpertBlock& block) {
      cuda::pack_rows({math_.stream(), data.dtype()}, block, experts.data(), placed(layout, data), experts.size(1));
    });
  }

  void require_runs(const LayerShape&) const override {}
  std::unique_ptr<Gate> make_gate(const PartSetup& setup) override { return cuda::make_gate(math_, setup); }
  std::unique_ptr<Order> make_order(const RankShape& rank) override {
    return cuda::make_order(rank.shape.layer.order, math_, rank.dtype());
  }

 private:
  CudaMath math_;
};

}  // namespace

std::unique_ptr<LayerDevice> make_layer_device(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm,
                                               std::optional<int> torch_gpu) {
  return std::make_unique<CudaLayerDevice>(std::move(memory), std::move(gemm), torch_gpu);
}

}  // namespace moe::cuda
