#include "moe/layer/cuda/layer_device.h"

#include "moe/layer/cuda/kernels.h"

namespace moe::cuda {
namespace {

PlacedRows placed(const RowLayout& layout, TensorView data) {
  require<WrongResult>(layout.places() != nullptr, "a layout that was not put on the device");
  return {data.data(), layout.places()};
}

// Describes a chunk's rows where the experts compute. An expert's begin equally far after those of the one before.
ExpertBlock block_of(const RowLayout& layout, Rows rows, std::span<const Rows> experts) {
  ExpertBlock block{layout.streams(), layout.experts(), layout.rows(), rows.begin, rows.count()};
  block.first = experts.front().begin;
  if (experts.size() > 1) block.step = experts[1].begin - experts[0].begin;
  for (size_t e = 0; e < experts.size(); ++e)
    require_equal(experts[e].begin, block.first + static_cast<int64_t>(e) * block.step, "first row of an expert");
  return block;
}

class CudaLayerDevice final : public LayerDevice {
 public:
  CudaLayerDevice(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm)
      : math_(std::move(memory), std::move(gemm)) {}
  Math& math() override { return math_; }

  void unpack(const RowLayout& layout, Rows rows, TensorView data, TensorView experts,
              std::span<const Rows> to) override {
    cuda::unpack_rows({math_.stream(), data.dtype()}, block_of(layout, rows, to), placed(layout, data), experts.data(),
                      experts.size(1));
  }
  void pack(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from,
            TensorView data) override {
    pack_rows({math_.stream(), data.dtype()}, block_of(layout, rows, from), experts.data(), placed(layout, data),
              experts.size(1));
  }

  // A dropless layer's sizes would have to come to the host within a pass; the hierarchical dispatchers sort blocks in
  // the host's memory.
  void require_runs(const LayerShape& layer) const override {
    require<Unsupported>(layer.capacity_factor.has_value(),
                         "capacity-factor none: a layer on CUDA drops tokens, expected a number");
    require<Unsupported>(layer.dispatcher == "alltoall", "dispatcher {}: not on CUDA, expected alltoall",
                         layer.dispatcher);
  }

  std::unique_ptr<Gate> make_gate(const PartSetup& setup) override { return cuda::make_gate(math_, setup); }

  std::unique_ptr<Order> make_order(const RankShape& rank) override {
    const std::string& name = rank.shape.layer.order;
    if (name == "tutel") return cuda::make_order(math_, rank.dtype());
    moe::make_order(name, sums_type(rank.dtype()));  // BadInput if nobody knows it
    throw Unsupported(fmt::format("order {}: has no CUDA kernels, expected tutel", name));
  }

 private:
  CudaMath math_;
};

}  // namespace

std::unique_ptr<LayerDevice> make_layer_device(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm) {
  return std::make_unique<CudaLayerDevice>(std::move(memory), std::move(gemm));
}

}  // namespace moe::cuda
