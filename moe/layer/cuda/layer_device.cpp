#include "moe/layer/cuda/layer_device.h"

namespace moe::cuda {
namespace {

class CudaLayerDevice final : public LayerDevice {
 public:
  CudaLayerDevice(std::unique_ptr<MemorySpace> memory, std::unique_ptr<Gemm> gemm)
      : math_(std::move(memory), std::move(gemm)) {}
  Math& math() override { return math_; }

  // A dropless layer's sizes would have to come to the host within a pass; the hierarchical dispatchers sort blocks in
  // the host's memory.
  void require_runs(const LayerShape& layer) const override {
    require<Unsupported>(layer.capacity_factor.has_value(),
                         "capacity-factor none: a layer on CUDA drops tokens, expected a number");
    require<Unsupported>(layer.dispatcher == "alltoall", "dispatcher {}: not on CUDA, expected alltoall",
                         layer.dispatcher);
  }

  std::unique_ptr<Gate> make_gate(const GateSetup& setup) override { return cuda::make_gate(math_, setup); }

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
