#pragma once
// A layer runs on a LayerDevice, which has the math, the memory, and the device's own versions of parts. Each rank has
// one, calls it from the thread that issues its tasks, and keeps it as long as the layer.
#include <memory>

#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"
#include "moe/tensor/math.h"

namespace moe {

class LayerDevice {
 public:
  virtual ~LayerDevice() = default;
  virtual Math& math() = 0;
  /// Finds the places of a layout's rows on the device again after its counts have changed. CUDA: sends its table,
  /// which blocks, and queues a kernel. CPU: does nothing.
  virtual void place(RowLayout& layout) = 0;
  /// Do the same as unpack_rows and pack_rows of row_layout.h. CUDA: only for layouts that were put on the device for
  /// the experts.
  virtual void unpack(const RowLayout& layout, Rows rows, TensorView data, TensorView experts,
                      std::span<const Rows> to) = 0;
  virtual void pack(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from,
                    TensorView data) = 0;
  /// Throws BadInput or Unsupported naming the first thing that the layer needs, except its gate and order, and that
  /// this device lacks.
  virtual void require_runs(const LayerShape& layer) const = 0;
  /// Make the part that the layer's shape names. They throw BadInput listing the known names, and Unsupported naming
  /// the parts that this device has.
  virtual std::unique_ptr<Gate> make_gate(const PartSetup& setup) = 0;
  virtual std::unique_ptr<Order> make_order(const RankShape& rank) = 0;
};

/// Returns the CPU's device, which computes by cpu_math() and has no state.
LayerDevice& cpu_layer_device();

/// Throws Unsupported naming a field that the layer has set and that only planning reads (LayerField::planned_only).
void require_fields_of_runs(const LayerShape& layer);
/// Gives these fields their defaults.
void clear_fields_of_plans(LayerShape& layer);

/// Returns whether layers on such a device can be of this type: 16 bits are a GPU's.
bool computes_in(DeviceKind kind, DType dtype);

/// Returns whether attention on such a device can keep its scores: only our own kernels on a GPU can, LibTorch's
/// cannot (attention_heads.h).
bool keeps_scores(DeviceKind kind, AttentionBy by);

struct GpuChoices {
  /// False: experts of a layer with a capacity use the fastest algorithm (Batch::fastest), so a first pass blocks and
  /// two processes may differ in the last bits. True: all processes use the same algorithm.
  bool same_bits = false;
  AttentionBy attention = AttentionBy::own;
};

/// Makes the device of the calling thread's GPU. It has every part that the CPU has. Throws NoHardware if this build
/// has no CUDA, or if LibTorch should compute attention and has no CUDA half.
std::unique_ptr<LayerDevice> make_cuda_layer_device(const GpuChoices& choices = {});

}  // namespace moe
